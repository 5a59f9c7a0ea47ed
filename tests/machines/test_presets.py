"""Every preset loads, says where each number is from, and contradicts neither itself nor what is known."""

from __future__ import annotations

from importlib import resources

import pytest

from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.machine import Compute
from flashmoe_sim.machines.table import PRESETS


def test_the_table_lists_the_files() -> None:
    folder = resources.files("flashmoe_sim.machines").joinpath("presets")
    assert sorted(f"{name}.toml" for name in PRESETS) == sorted(entry.name for entry in folder.iterdir())
    assert len(PRESETS) >= 16


@pytest.mark.parametrize("name", PRESETS)
def test_each_number_says_where_it_is_from(name: str) -> None:
    machine = load_machine(name)
    assert machine.name == name
    assert machine.anchors is None
    for path, quantity in machine.quantities():
        assert len(quantity.source) >= 10 or quantity.source.isupper(), path
        assert len(quantity.condition) >= 5, path
        assert quantity.source != quantity.condition, path
        assert quantity.lo <= quantity.value <= quantity.hi
    for point in machine.storage.measured:
        assert len(point.source) >= 10


@pytest.mark.parametrize("name", PRESETS)
def test_numbers_of_one_machine_agree(name: str) -> None:
    machine = load_machine(name)
    memory = machine.memory
    assert memory.reserve_gib.value < memory.ram_gib.value
    assert memory.copy_gb_s.value < memory.bandwidth_gb_s.value
    assert machine.storage.read_gb_s.value < memory.bandwidth_gb_s.value
    assert machine.cpu is not None
    assert rate(machine.cpu) < memory.bandwidth_gb_s.value
    if machine.gpu is not None:
        assert rate(machine.cpu) < rate(machine.gpu)
        assert machine.gpu.memory_gib is not None
        assert (machine.link is None) == machine.unified
        if machine.unified:
            assert rate(machine.gpu) < memory.bandwidth_gb_s.value
            assert machine.gpu.memory_gib.value < memory.ram_gib.value
    if machine.link is not None:
        assert machine.link.pageable_gb_s.value < machine.link.pinned_gb_s.value < memory.bandwidth_gb_s.value


def rate(unit: Compute) -> float:
    return unit.weights_gb_s.value


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("m5-pro-48", "storage.read_gb_s", 17.25),  # slotstream's cold sweep
        ("m5-pro-48", "memory.bandwidth_gb_s", 235.1),
        ("m3-max-48", "storage.read_gb_s", 5.5),
        ("phone-ufs4", "storage.read_gb_s", 2457.9 * 2**20 / 1e9),
        ("laptop-ddr4", "storage.read_gb_s", 900 * 2**20 / 1e9),
        ("strix-halo-128", "memory.bandwidth_gb_s", 212),
        ("rtx-4090", "link.pageable_gb_s", 17.1),
        ("rtx-5090", "link.pinned_gb_s", 56.3),
    ],
)
def test_published_numbers(name: str, path: str, value: float) -> None:
    quantity = dict(load_machine(name).quantities())[path]
    assert quantity.value == pytest.approx(value, rel=0.005)
    assert not quantity.estimated


@pytest.mark.parametrize(
    ("name", "bytes_gb", "layers", "tok_s"),
    [
        ("m5-max-128", 1.75, 40, 109.0),  # Qwen3.5-35B-A3B UD-IQ2_M, Anemll/anemll-flash-llama.cpp
        ("m3-max-48", 1.95, 48, 66.1),  # qwen3-coder:30b, AlexsJones/llmfit, pull request 954
        ("rtx-3090", 1.95, 48, 167),  # Qwen3-30B-A3B Q4_K on a 3090 Ti, smeltcore.com
        ("rtx-4090", 1.95, 48, 196),  # Qwen3-30B-A3B, runaihome.com
        ("strix-halo-128", 1.95, 48, 66),  # Qwen3-Coder-30B-A3B, fromthematrix.dev
        ("m4-32", 4.62, 32, 20.9),  # 8B Q4_K_M, brand-o/normiebench, issue 3
        ("rtx-5090", 4.68, 36, 221.7),  # qwen3-8B Q4_K_M, CambrianTech/continuum, pull request 1627
    ],
)
def test_published_decode_speeds_come_out(name: str, bytes_gb: float, layers: int, tok_s: float) -> None:
    """What a token reads over weights_gb_s, and layer_us a layer: within 15% of what was measured."""
    gpu = load_machine(name).gpu
    seconds = bytes_gb / rate(gpu) + layers * gpu.layer_us.value * 1e-6
    assert 1 / seconds == pytest.approx(tok_s, rel=0.15)


def test_what_can_be_installed_follows_from_the_preset() -> None:
    """Every preset with a GPU names its maker; NVIDIA's GPUs have a compute capability, and no others have one."""
    for machine in map(load_machine, PRESETS):
        assert bool(machine.gpu_maker) == (machine.gpu is not None)
        assert bool(machine.gpu_compute) == (machine.gpu_maker == "nvidia")
        assert (machine.os == "macos") == (machine.gpu_maker == "apple")
    known = {name: load_machine(name) for name in ("vm-2core", "gb10-128", "phone-ufs4", "rtx-4090")}
    assert [machine.os for machine in known.values()] == ["linux", "linux", "android", ""]
    assert [machine.cpu_cores for machine in known.values()] == [2, 0, 0, 16]
    assert [machine.cpu_features for machine in known.values()] == [None, ("neon",), ("neon",), ("avx2", "avx512")]
