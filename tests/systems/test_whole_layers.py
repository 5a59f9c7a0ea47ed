"""Whole layers on the GPU: what each memory holds, how fast the two ends are, and what published runs say."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from flashmoe_sim.field.asked import system_of
from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.io.errors import Unsupported
from flashmoe_sim.io.sizes import GIB, MIB
from flashmoe_sim.machines.belief import published_times
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.systems.base import Case
from flashmoe_sim.systems.compare import at_setting
from flashmoe_sim.systems.table import parse_system
from flashmoe_sim.systems.whole_layers import OllamaLayers, WholeLayers
from flashmoe_sim.tune.objective import Objective
from flashmoe_sim.tune.proof import first
from tests.field.builders import row
from tests.systems.cases import case, workload

NAMES = ("whole-layers", "placed")


def speed(on: Case, spec: str) -> float:
    """As its parts say."""
    found = at_setting(workload(on.model), on, parse_system(spec), interval=False)
    assert found.tok_s is not None
    return found.tok_s / published_times(parse_system(spec).name)


def held(on: Case, gpu_layers: int) -> dict[tuple[str, str], int]:
    return {(share.where, share.what): share.size_bytes for share in WholeLayers(gpu_layers=gpu_layers).memory(on)}


def test_what_each_memory_holds() -> None:
    """Six layers, of which the last four have 16 experts of 4 MiB; 7 parts of dense weights, the output being one."""
    on = replace(case(), model=replace(case().model, dense_bytes=7 * MIB), kv_bytes=6 * MIB, buffers_bytes=MIB)
    layer = 16 * 4 * MIB
    three = held(on, 3)  # the output, layers 5 and 4
    assert three["gpu", "experts"] == 2 * layer
    assert three["gpu", "context"] == 2 * MIB
    assert three["mapped", "experts of the CPU"] == 2 * layer
    assert three["gpu", "dense weights"] == 3 * MIB
    assert three["ram", "context of the CPU"] == 4 * MIB
    assert held(on, 0)["gpu", "experts"] == 0
    assert held(on, 7)["mapped", "experts of the CPU"] == 0
    assert held(on, 99) == held(on, 7)


def test_both_ends_are_the_gpu_alone_and_the_cpu_alone() -> None:
    on = replace(case(ram_gib=64), model=replace(case().model, dense_bytes=GIB))
    assert speed(on, "whole-layers:gpu_layers=7") == pytest.approx(speed(on, "all-gpu"), rel=1e-3)
    assert speed(on, "whole-layers:gpu_layers=0") == pytest.approx(speed(on, "cpu"), rel=0.1)
    speeds = [speed(on, f"whole-layers:gpu_layers={layers}") for layers in range(8)]
    assert all(slow < fast for slow, fast in pairwise(speeds))


def test_experts_alone_on_the_cpu_are_faster_than_whole_layers_if_attention_stays_on_the_gpu() -> None:
    model = load_model("gpt-oss-120b")
    on = Case(model, load_machine("rtx-4090 + ryzen-9700x + ddr5-5600x2 + 96GiB"))
    own = parse_system("whole-layers").sized(on)
    assert speed(on, own.spec) < speed(on, parse_system("placed").sized(on).spec)


def test_as_many_layers_as_fit() -> None:
    on = case(gpu_gib=2, ram_gib=64)
    own = WholeLayers().sized(on)
    assert isinstance(own, WholeLayers)
    own.check(on)
    more = replace(own, gpu_layers=own.chosen + 1)
    assert sum(one.size_bytes for one in more.memory(on) if one.where == "gpu") > on.gpu_bytes - on.spare_bytes


def test_where_every_layer_fits_it_is_all_gpu() -> None:
    with pytest.raises(Unsupported, match="has room for every layer, which is all-gpu"):
        WholeLayers().sized(case(gpu_gib=24))
    assert speed(case(gpu_gib=24), "whole-layers:gpu_layers=7")


def test_it_stands_behind_placed_wherever_that_runs() -> None:
    on = case(gpu_gib=2, ram_gib=64)
    whole, placed = (at_setting(workload(on.model), on, parse_system(name).sized(on)) for name in NAMES)
    faster = replace(whole, tok_s=9 * (placed.tok_s or 0), draws=9 * placed.draws)
    assert first([faster, placed], on, Objective()) is placed
    assert first([faster], on, Objective()) is faster


@pytest.mark.parametrize(
    ("cells", "spec"),
    [
        ({"flags": "-ngl 38 -p 512"}, "whole-layers:gpu_layers=38"),
        ({"flags": "--n-gpu-layers 38"}, "whole-layers:gpu_layers=38"),
        ({"flags": "--gpu-layers=38"}, "whole-layers:gpu_layers=38"),
        ({"engine": "ollama", "flags": "Ollama defaults"}, "ollama-layers"),
        ({"engine": "Ollama", "flags": "defaults: 48 % CPU, 52 % GPU"}, "ollama-layers:gpu_layers=25"),
        ({"engine": "Ollama", "flags": "ollama ps: 48%/52% CPU/GPU"}, "ollama-layers:gpu_layers=25"),
        ({"engine": "Ollama", "flags": "15 of 25 layers on the GPU"}, "ollama-layers:gpu_layers=15"),
        ({"engine": "Ollama", "flags": "15 out of 25 layers on GPU"}, "ollama-layers:gpu_layers=15"),
        ({"engine": "Ollama", "flags": "offloaded 15/25 layers to GPU"}, "ollama-layers:gpu_layers=15"),
        ({"engine": "Ollama", "flags": "num_gpu=15"}, "ollama-layers:gpu_layers=15"),
        ({"engine": "ollama", "engine_version_or_pr": "0.29.1"}, "ollama-layers"),
        ({"engine": "ollama", "engine_version_or_pr": "v0.34.2"}, "placed"),
        ({"flags": "--fit on --fit-target 0"}, "placed"),
    ],
)
def test_what_a_published_run_says(tmp_path: Path, cells: dict[str, str], spec: str) -> None:
    assert system_of(row(tmp_path, strategy="other", **cells)).spec == spec


def test_a_run_that_does_not_say_where_its_layers_were(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="does not say how many layers the GPU has"):
        system_of(row(tmp_path, strategy="other"))


def test_unlike_gpus_are_refused() -> None:
    on = Case(load_model("gpt-oss-120b"), load_machine("rtx-3090 + rtx-3060 + ryzen-5600 + 64GiB"))
    assert "equal GPUs" in OllamaLayers().why_not(on)
