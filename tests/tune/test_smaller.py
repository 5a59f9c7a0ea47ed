"""A smaller quantization that runs much faster: found if it fits where the larger one does not."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from flashmoe_sim.api import recommend
from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.geometry.named import file_bytes
from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.report.advice import sections
from flashmoe_sim.report.advice_json import document
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.systems.base import Case
from flashmoe_sim.systems.compare import Compared, at_setting
from flashmoe_sim.systems.resolve import parse_systems
from flashmoe_sim.tune.change import Changed
from flashmoe_sim.tune.smaller import MUCH, faster_when_smaller
from tests.systems.cases import machine, workload

PLAIN = tuple(parse_systems("all-gpu,placed"))
NAME = "olmoe-1b-7b"  # 3.92 GiB in q4_k_m, 3.50 in iq4_xs, 3.11 in q3_k_m and 2.39 in q2_k, and buffers of 1 GiB


@cache
def small(quant: str) -> Workload:
    return workload(load_model(f"{NAME}:{quant}"))


def asked(gpu_gib: float, *, quant: str = "q4_k_m", systems: tuple[str, ...] = ("all-gpu", "placed")) -> Changed | None:
    """What is found for a GPU of this size, compared with experts placed by layer on it."""
    case = Case(load_model(f"{NAME}:{quant}"), machine("rtx-3090", gpu_gib=gpu_gib, ram_gib=64), buffers_bytes=GIB)
    of = small(quant)
    chosen = tuple(parse_systems(",".join(systems)))
    best = max((at_setting(of, case, one.sized(case)) for one in PLAIN), key=lambda one: one.tok_s or 0.0)
    return faster_when_smaller(of, case, chosen, best)


@pytest.mark.parametrize(("gpu_gib", "quant"), [(4.6, "iq4_xs"), (4.2, "q3_k_m")])
def test_the_largest_that_fits_the_gpu_is_found(gpu_gib: float, quant: str) -> None:
    found = asked(gpu_gib)
    assert (found.change, found.after.system.name) == (f"{NAME}:{quant}", "all-gpu")
    assert found.times >= MUCH
    assert found.after.tok_s_lo is not None
    assert found.after.tok_s_hi is not None
    assert found.after.launch is not None


def test_two_bits_are_said_if_nothing_larger_helps() -> None:
    """In 3 GiB, q3_k_m is 1.48 times as fast, and q2_k 3 times."""
    found = asked(3.0)
    assert found.change == f"{NAME}:q2_k"


@pytest.mark.parametrize(("gpu_gib", "quant"), [(24, "q4_k_m"), (4.2, "q2_k"), (1.7, "q3_k_m")])
def test_nothing_is_found(gpu_gib: float, quant: str) -> None:
    """All on the GPU already; nothing smaller; and q2_k is 1.3 times as fast as q3_k_m if little fits."""
    assert asked(gpu_gib, quant=quant) is None


def test_only_given_systems_and_that_of_the_best_are_tried() -> None:
    found = asked(4.6, systems=("cpu",))
    assert found.after.system.name == "placed"


def test_two_bits_and_fewer_if_no_listed_one_fits() -> None:
    """Qwen3-235B in q2_k is 80 GiB; 64 in ud-iq1_s are less than what GPU and RAM have together."""
    case = Case(load_model("qwen3-235b-a22b"), load_machine("rtx-3090 + 48GiB + nvme-gen4"), kv_bytes=800 << 20)
    of = workload(case.model, tokens=16)
    best = at_setting(of, case, PLAIN[1].sized(case))
    assert faster_when_smaller(of, case, PLAIN, best).change == "qwen3-235b-a22b:ud-iq1_s"


def test_a_model_that_is_no_named_one_has_none() -> None:
    case = Case(replace(load_model(NAME), name="mine"), machine("rtx-3090", gpu_gib=4.6, ram_gib=64))
    of = workload(case.model)
    best = at_setting(of, case, PLAIN[1].sized(case))
    assert best.tok_s is not None
    assert faster_when_smaller(of, case, PLAIN, best) is None


def test_what_does_not_run_is_compared_with_nothing() -> None:
    case = Case(load_model(NAME), machine("rtx-3090", gpu_gib=4.6, ram_gib=64))
    assert faster_when_smaller(small("q4_k_m"), case, PLAIN, Compared(PLAIN[1], "no")) is None


def test_another_models_trace_widens_the_interval_of_what_can_miss() -> None:
    case = Case(load_model("qwen3-30b-a3b"), load_machine("vm-2core"))
    of = workload(case.model, tokens=16)
    (system,) = parse_systems("big-moe-on-edge")
    best = at_setting(of, case, system.sized(case))
    own, borrowed = (faster_when_smaller(of, case, [system], best, borrowed=known) for known in (False, True))
    assert own.after.tok_s == borrowed.after.tok_s
    assert (own.after.tok_s_lo or 0.0) > (borrowed.after.tok_s_lo or 0.0) > 0.0


def test_a_large_model_on_a_mac() -> None:
    """Experts of Qwen3-235B are read from the SSD in q4_k_m; a smaller one is all in the memory that the GPU shares."""
    case = Case(load_model("qwen3-235b-a22b:q4_k_m"), load_machine("m4-max-128"), kv_bytes=800 << 20)
    of = workload(case.model, tokens=32)
    systems = parse_systems("all-gpu,placed,big-moe-on-edge")
    best = at_setting(of, case, systems[2].sized(case))
    found = faster_when_smaller(of, case, systems, best)
    assert found.change in ("qwen3-235b-a22b:q3_k_m", "qwen3-235b-a22b:q2_k")
    assert found.after.system.name == "all-gpu"
    assert 18 < found.after.tok_s < 32


CPU = "ryzen-5600 + ddr4-3200x2 + 32GiB + linux"
SMALL_GPU = "gtx-1660 + i5-9400f + ddr4-2666x2 + 32GiB + linux"


@pytest.mark.parametrize(
    ("spec", "on", "larger", "why"),
    [
        ("qwen3-30b-a3b:iq2_xxs", CPU, "qwen3-30b-a3b:q2_k", "since this CPU computes Q2_K faster than IQ2_XXS."),
        ("qwen3.6-35b-a3b:ud-q2_k_xl", SMALL_GPU, "qwen3.6-35b-a3b:q2_k", "since a token reads 1.31 GB of it and 1.98"),
        ("qwen3-30b-a3b:q4_k_m", CPU, "", ""),
    ],
)
@pytest.mark.filterwarnings("ignore:no trace of")
def test_a_larger_file_that_is_faster(spec: str, on: str, larger: str, why: str) -> None:
    """Because of its kernels, or of what a token reads; it is as fast as it is said to be when asked for itself."""
    found = recommend(spec, machine=on, systems="cpu,placed")
    assert (found.larger.change if found.larger else "") == larger
    text = " ".join(str(part) for part in sections(found)[0].parts)
    assert ("A larger file is faster" in text) == bool(larger)
    if found.larger is not None:
        assert why in text
        alone = recommend(larger, machine=on, systems="cpu,placed").best.best
        assert found.larger.times == pytest.approx(alone.tok_s / found.best.best.tok_s, rel=0.03)
        assert alone.system.name == found.best.best.system.name == found.larger.after.system.name
        assert file_bytes(load_model(larger)) > file_bytes(load_model(spec))
        assert document(found)["larger"]["model"] == larger
