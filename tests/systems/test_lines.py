"""Command lines ask for what was priced: context and type, layers, threads, and the file as it is read."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace

import pytest

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.geometry.model import CACHE_TYPES
from flashmoe_sim.geometry.named import named_model
from flashmoe_sim.io.errors import BadInput, Unsupported
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.options import MemoryOptions
from flashmoe_sim.systems.all_gpu import AllGpu
from flashmoe_sim.systems.base import LOADED_SHARE, Case, System
from flashmoe_sim.systems.big_moe_on_edge import BigMoeOnEdge
from flashmoe_sim.systems.cpu import Cpu
from flashmoe_sim.systems.ktransformers import KTransformers
from flashmoe_sim.systems.placed import PlacedLayers
from flashmoe_sim.systems.resolve import resolve
from flashmoe_sim.systems.strata import KV_WORDS
from flashmoe_sim.systems.table import SYSTEMS
from tests.systems.cases import case, machine

MACHINES = (
    "rtx-3060 + ryzen-5600 + ddr4-3200x2 + 32GiB",
    "rtx-4090 + xeon-8480 + 256GiB + linux",
    "2x rtx-5090 + 96GiB + linux",
    "rx-9070-xt + 64GiB",
    "rtx-5090 + 128GiB",
    "strix-halo-128",
    "m4-max-128",
    "m2-16",
)
MODELS = (
    "gpt-oss-120b",
    "qwen3-30b-a3b",
    "qwen3.5-35b-a3b:q5_k_m",
    "qwen3.8-flash-next",
    "qwen3.8-flash-next:mlx-4bit",
    "glm-4.5-air:fp8",
    "deepseek-v2-lite",
    "deepseek-v4-flash",
    "gemma-4-26b-a4b:mlx-4bit",
    "qwen3.5-397b-a17b:mlx-4bit",
)
CONTEXT = 8192
UNASKED = {"flash-moe", "mlx"}  # have no option for the length of a context


def priced(system: System, name: str, machine: str) -> tuple[Case, System] | None:
    """The case and the setting that are priced for a system; None if it does not run there."""
    memory = MemoryOptions(context=CONTEXT)
    try:
        of = resolve(
            workload=None,
            model=named_model(name),
            machine=load_machine(machine),
            systems=[system],
            memory=memory,
            may_borrow=False,
        ).case
        if system.why_not(of):
            return None
        sized = system.sized(of)
        sized.check(of)
    except BadInput:
        return None
    return of, sized


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_line_asks_for_the_case_that_was_priced(name: str) -> None:
    system, seen = SYSTEMS[name](), 0
    for where in MACHINES:
        for model in MODELS:
            if (found := priced(system, model, where)) is None:
                continue
            case, sized = found
            seen += 1
            line = sized.launch(case).line
            assert str(CONTEXT) in re.split("[ =]", line) or name in UNASKED, line
            check_layers(line, sized, case)
    assert seen or name == "slot-remap"  # of which no output is known to be right on these machines


def check_layers(line: str, system: System, case: Case) -> None:
    """The layers on the CPU, where a system keeps whole layers there."""
    layers = getattr(system, "cpu_layers", None)
    on_cpu = re.search(r"(?:--n-cpu-moe|-ncmoe) (\d+)", line)
    if layers is not None and layers >= 0 and on_cpu:
        assert int(on_cpu[1]) - layers in (0, min(case.model.layers)), line


CARD = machine("rtx-3090", gpu_gib=24, ram_gib=64)
MAC = machine("m3-max-48")


def asked(name: str, kv_type: str) -> tuple[Case, str]:
    """The case, and the line with which a system starts there."""
    model = load_model("qwen3-30b-a3b:q4_k_m")
    system = SYSTEMS[name]()
    case = Case(model, MAC if system.own_gpu is False else CARD, context=8192, kv_bytes=1 << 29, kv_type=kv_type)
    with suppress(BadInput):
        system = system.sized(case)
    return case, system.started(case).line


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("kv_type", ["q8_0", "q4_0", "q5_1"])
def test_a_type_is_in_the_line_or_refused(name: str, kv_type: str) -> None:
    case, line = asked(name, kv_type)
    reason = SYSTEMS[name]().why_not_kv_type(case)
    if kv_type in SYSTEMS[name]().kv_types:
        assert reason == ""
        flags = {
            "strata": f"--kv {KV_WORDS.get(kv_type, kv_type)}",
            "ollama-layers": f"OLLAMA_KV_CACHE_TYPE={kv_type}",
        }.get(name, f"-ctk {kv_type} -ctv {kv_type}")
        assert flags in line
        assert not re.search(r"q[458]_|int8", asked(name, "f16")[1])
    else:
        assert reason.endswith(f"leave out --kv-type {kv_type}")
        assert SYSTEMS[name]().why_not_kv_type(replace(case, kv_type="f16")) == ""


def test_what_is_refused_says_which_it_takes() -> None:
    case, _ = asked("imp", "q8_0")
    with pytest.raises(Unsupported, match=r"keep keys and values in f16 only; leave out --kv-type q8_0"):
        SYSTEMS["imp"]().check(replace(case, machine=machine("rtx-5090", ram_gib=64)))
    assert SYSTEMS["ds4"]().kv_types == SYSTEMS["big-moe-on-edge"]().kv_types == ("f16",)
    case, _ = asked("strata", "q5_0")
    assert SYSTEMS["strata"]().why_not_kv_type(case) == (
        "is known to keep keys and values in f16, q8_0 or q4_0 only; leave out --kv-type q5_0"
    )


def test_types_are_those_that_a_context_may_have() -> None:
    for system in SYSTEMS.values():
        assert set(system().kv_types) <= set(CACHE_TYPES)


@pytest.mark.parametrize("system", [PlacedLayers(cpu_layers=4), Cpu()], ids=str)
def test_a_file_is_read_into_ram_only_if_it_fits(system: System) -> None:
    on = case()
    needed = sum(share.size_bytes for share in system.memory(on) if share.where in ("ram", "mapped"))
    enough = needed / LOADED_SHARE / 2**30 + 0.5  # half a GiB is the system's
    assert system.launch(case(ram_gib=1.01 * enough)).line.endswith(" --load-mode none")
    assert "--load-mode" not in system.launch(case(ram_gib=0.9 * enough)).line
    assert "--load-mode" not in AllGpu().launch(on).line  # nothing is computed from the file


def test_weights_stay_in_the_mapped_file_beyond_ram() -> None:
    on = case("laptop-ddr4")
    needed = sum(share.size_bytes for share in Cpu().memory(on))
    for ram_gib, in_place in ((0.9 * needed / 2**30, True), (2 * needed / 2**30, False)):
        assert Cpu().launch(case("laptop-ddr4", ram_gib=ram_gib)).line.endswith(" --no-repack") == in_place


def test_the_cpu_alone_leaves_a_gpu_alone() -> None:
    assert "-dev none" in Cpu().launch(case()).line
    assert "-ngl 0" in Cpu().launch(case("laptop-ddr4")).line


@pytest.mark.parametrize(("quant", "method"), [("bf16", "BF16"), ("fp8", "FP8")])
def test_ktransformers_computes_the_format_that_it_is_given(quant: str, method: str) -> None:
    on = Case(load_model(f"qwen3-235b-a22b:{quant}"), load_machine("2x rtx-3090 + epyc-9354 + 768GiB"))
    assert f"--kt-method {method}" in KTransformers(experts=4).launch(on).line


@pytest.mark.parametrize(
    ("machine", "cores"),
    [("rtx-4090 + ryzen-5950x + 64GiB", "16"), ("m4-max-128", "12"), ("i9-14900k + 64GiB", "8"), ("rtx-3060", "CORES")],
)
def test_engines_whose_own_threads_are_no_cores_are_told_the_cores(machine: str, cores: str) -> None:
    """BigMoeOnEdge takes 4 threads by itself, ktransformers none; llama.cpp counts the cores."""
    on = case(machine)
    assert f" -t {cores} " in BigMoeOnEdge(cache_mib=2000).launch(on).line
    assert f" --kt-cpuinfer {cores} " in KTransformers(experts=4).launch(on).line
    assert "-t" not in Cpu().launch(on).words
