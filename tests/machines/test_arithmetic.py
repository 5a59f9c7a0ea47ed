"""How fast cores compute a quantization, and what that does to the seconds of a CPU."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.machines.arithmetic import knee_tokens, most_gb_s, weight_bytes
from flashmoe_sim.machines.estimates import estimate, estimates
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.machine import WEIGHT_BYTES, Machine
from flashmoe_sim.systems.base import Case
from flashmoe_sim.systems.compare import at_setting
from flashmoe_sim.systems.placed import PlacedLayers
from flashmoe_sim.systems.placed_ik import PlacedIk
from flashmoe_sim.timeline.assemble import Conditions, price, weigh
from flashmoe_sim.timeline.models.base import NEVER
from flashmoe_sim.timeline.models.hot_cold import HotCold
from flashmoe_sim.timeline.models.mapped import Mapped
from tests.systems.cases import workload

DESKTOP = load_machine("rtx-3060 + ryzen-5600 + 64GiB")


def with_cores(cores: int, *features: str) -> Machine:
    return replace(DESKTOP, cpu_cores=cores, cpu_features=features)


@pytest.mark.parametrize(
    ("cores", "features", "quant", "program", "expected"),
    [
        (6, ("avx2",), "iq2_xxs", "llama.cpp", 0.8 * 0.5 * 6 * 6.5),
        (8, ("avx2", "avx512"), "ud-iq3_xxs", "ik_llama.cpp", 0.8 * 8 * 10.2),
        (8, ("neon",), "IQ2_XXS+Q2_K+Q6_K", "llama.cpp, neurall's fork", 0.8 * 8 * 5.2),
        (4, ("avx2",), "ud-q4_k_xl", "ollama", 0.8 * 0.5 * 4 * 22.4),
        (8, ("avx512",), "iq4_ks_r4", "ik_llama.cpp", 0.8 * 8 * 31.6),
        (8, ("avx512",), "apex-quality", "llama.cpp", 0.8 * 8 * 18.1),
        (8, ("avx512",), "iq2_xxs", "Strata", inf),
        (8, ("avx512",), "mxfp4", "llama.cpp", inf),
        (8, ("avx512",), "", "llama.cpp", inf),
        (0, ("avx512",), "iq2_xxs", "llama.cpp", inf),
        (8, (), "iq2_xxs", "llama.cpp", inf),
    ],
)
def test_rates_by_hand(cores: int, features: tuple[str, ...], quant: str, program: str, expected: float) -> None:
    assert most_gb_s(with_cores(cores, *features), quant, program) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("quant", "expected"),
    [
        ("bf16", 2),
        ("F32+F16", 4),
        ("ud-q8_k_xl", 8.5 / 8),
        ("fp16", 2),
        ("Q6_K+Q4_K", 6.5 / 8),
        ("mlx-4bit", 4.5 / 8),
        ("ud-iq2_xxs", 2.5 / 8),
        ("ds4-q2", 2.5 / 8),
        ("ud-tq1_0", 1.5 / 8),
        ("exl3-5.05bpw", 5.55 / 8),
        ("", 0.56),
        ("own", 0.56),
    ],
)
def test_bytes_of_a_weight(quant: str, expected: float) -> None:
    assert weight_bytes(quant) == expected


def test_a_batch_waits_for_arithmetic_the_later_the_larger_its_weights() -> None:
    gpu = DESKTOP.gpu
    assert gpu is not None
    two, four, eight, mixed, sixteen = (knee_tokens(gpu, bits / 8) for bits in (2.5, 4.5, 8.5, (8.5 + 16) / 2, 16))
    assert two < four < sixteen < mixed < eight
    assert eight == pytest.approx(four * 8.5 / 4.5)
    assert sixteen == pytest.approx(four * 16 / 4.5 / 2)  # computed at half the rate
    assert mixed == pytest.approx(four * 12.25 / 4.5 / 1.5)
    assert knee_tokens(gpu, WEIGHT_BYTES) == gpu.knee_tokens.value


@pytest.mark.parametrize(
    ("quant", "dense_bits", "expert_bits"), [("q8_0", 8.5, 8.5), ("ud-iq2_m", 8.5, 2.5), ("unknown", 4.48, 4.48)]
)
def test_dense_weights_have_their_own_bits(quant: str, dense_bits: float, expert_bits: float) -> None:
    of = load_model("qwen3.5-35b-a3b:q8_0")
    if quant == "unknown":
        of = replace(of, dense_weights=0)
    conditions = Conditions(HotCold())
    weights = replace(weigh(of, tuple(of.layers.values()), conditions), quant=quant)
    costs = price(weights, DESKTOP, conditions, io_split=4)
    assert DESKTOP.gpu is not None
    on_gpu, on_cpu = DESKTOP.gpu.knee_tokens.value, DESKTOP.cpu.knee_tokens.value
    assert costs.dense_knee_tokens == pytest.approx(on_gpu * dense_bits / 8 / 0.56, rel=0.01)
    assert costs.knee_tokens == pytest.approx(on_gpu * expert_bits / 8 / 0.56)
    assert costs.cold_knee_tokens == pytest.approx(on_cpu * expert_bits / 8 / 0.56)
    assert costs.added_from == estimate("gpu.added_from").value


def test_a_cpu_computes_while_it_reads() -> None:
    of = load_model("qwen3.5-35b-a3b:q8_0")
    conditions = Conditions(Mapped())
    weights = weigh(of, tuple(of.layers.values()), conditions)
    costs = price(weights, replace(DESKTOP, gpu=None, link=None, api=""), conditions, io_split=4)
    assert costs.added_from == NEVER


def test_every_program_has_the_same_types() -> None:
    kernels = [(cores, program) for cores in ("avx512", "neon") for program in ("llama.cpp", "ik_llama.cpp")]
    of_each = [estimates(f"cpu.core_gb_s.{cores}.{program}") for cores, program in kernels]
    assert of_each[0]
    assert all(rates.keys() == of_each[0].keys() for rates in of_each)


def test_experts_take_their_bytes_over_the_slower_of_ram_and_cores() -> None:
    of = load_model("qwen3.5-35b-a3b:ud-iq2_m")
    conditions = Conditions(HotCold())
    weights = weigh(of, tuple(of.layers.values()), conditions)
    ram = DESKTOP.cpu.weights_gb_s.value
    for cores in (1, 2, 6, 16, 64):
        machine = with_cores(cores, "avx2")
        limit = most_gb_s(machine, of.quant, "llama.cpp")
        seconds = price(weights, machine, conditions, io_split=4).cold_expert_s
        expected = [layer.expert_bytes / (min(ram, limit) * 1e9) for layer in of.layers.values()]
        assert seconds == pytest.approx(expected)
    assert limit > ram


def test_more_cores_are_never_slower_and_only_types_of_few_bits_wait_for_them() -> None:
    speeds: dict[str, list[float]] = {}
    for quant in ("ud-iq2_m", "q4_k_m"):
        of = load_model(f"qwen3.5-35b-a3b:{quant}")
        trace = workload(of, tokens=16)
        for system in (PlacedLayers(cpu_layers=40), PlacedIk(cpu_layers=40)):
            name = f"{quant} {system.name}"
            for cores in (6, 16):
                found = at_setting(trace, Case(of, with_cores(cores, "avx2")), system)
                assert found.tok_s is not None, found.why_not
                speeds.setdefault(name, []).append(found.tok_s)
    assert all(few <= many for few, many in speeds.values())
    gains = {name: many / few for name, (few, many) in speeds.items()}
    assert gains["ud-iq2_m placed"] > gains["ud-iq2_m placed-ik"] > 1.1
    assert gains["q4_k_m placed"] == gains["q4_k_m placed-ik"] == 1
