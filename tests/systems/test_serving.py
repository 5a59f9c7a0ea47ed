"""Whole command lines: what the prediction assumes, and what an engine's defaults leave open."""

from __future__ import annotations

import pytest

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.systems.all_gpu import AllGpu
from flashmoe_sim.systems.base import LOADED_SHARE, Case, System
from flashmoe_sim.systems.big_moe_on_edge import BigMoeOnEdge
from flashmoe_sim.systems.cpu import Cpu
from flashmoe_sim.systems.ktransformers import KTransformers
from flashmoe_sim.systems.placed import PlacedLayers
from tests.systems.cases import case


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
