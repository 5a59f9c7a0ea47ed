"""A machine's memories: terms by hand, and what moves with each override."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path

import pytest

from flashmoe_sim.budget import Context, MemoryBudget, spare_bytes, wired_limit_advice, with_reserve
from flashmoe_sim.geometry.model import Attention, LayerCache
from flashmoe_sim.io.errors import Incomplete, OutOfRange, TooLarge, UnknownName
from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.machines.estimates import estimate
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.machine import Machine
from tests.systems.cases import machine, model

DESKTOP = machine(gpu_gib=8, ram_gib=32)  # half a GiB is the system's
TAKEN = {"dense_bytes": GIB, "kv_bytes": 2 * GIB, "buffers_bytes": 3 * GIB}
BUDGET = MemoryBudget.of(DESKTOP, **TAKEN)


def terms(budget: MemoryBudget) -> dict[str, float]:
    return {f"{term.what}, {term.where}": term.size_bytes / GIB for term in budget.terms()}


def test_a_gpu_with_a_memory_of_its_own() -> None:
    assert terms(BUDGET) == {
        "GPU memory, gpu": 8,
        "RAM, ram": 32,
        "system, ram": 0.5,
        "dense weights, gpu": 1,
        "context, gpu": 2,
        "compute buffers, gpu": 3,
        "left on the GPU, gpu": 2,
        "left in RAM, ram": 31.5,
    }
    assert (BUDGET.room_bytes, BUDGET.room, BUDGET.left_bytes) == (8 * GIB, "8 GiB on its GPU", 2 * GIB)
    assert BUDGET.page_bytes(GIB) == 31.5 * GIB  # the bank is on the GPU


def test_a_gpu_that_shares_the_ram() -> None:
    """36 of 48 GiB at most for the GPU; what the model takes is taken from both."""
    shared = machine("m3-max-48", gpu_gib=36, ram_gib=48)
    budget = MemoryBudget.of(shared, **TAKEN)
    assert (budget.gpu, budget.gpu_bytes, budget.room) == ("shared", 36 * GIB, "48 GiB less 0.5 GiB for the system")
    assert (terms(budget)["left on the GPU, ram"], terms(budget)["left in RAM, ram"]) == (30, 41.5)
    assert budget.page_bytes(GIB) == 40.5 * GIB
    assert MemoryBudget.of(machine("m3-max-48", gpu_gib=36, ram_gib=16)).gpu_bytes == 15.5 * GIB


def test_without_a_gpu() -> None:
    budget = MemoryBudget.of(machine("laptop-ddr4", ram_gib=16), **TAKEN)
    assert (budget.gpu_bytes, budget.left_bytes, budget.page_bytes(0)) == (0, 9.5 * GIB, 9.5 * GIB)
    assert {where for _, _, where in (name.partition(", ") for name in terms(budget))} == {"ram"}


def test_a_memory_that_is_not_known() -> None:
    budget = MemoryBudget.of(replace(machine("laptop-ddr4"), memory=None), dense_bytes=GIB)
    assert (budget.room_bytes, budget.room, budget.page_bytes(0)) == (math.inf, "an unknown memory", 0)
    assert terms(budget) == {"dense weights, ram": 1, "context, ram": 0, "compute buffers, ram": 0}


@pytest.mark.parametrize(
    ("changed", "moved"),
    [
        ({"dense_bytes": 0}, {"dense weights, gpu": -1, "left on the GPU, gpu": 1}),
        ({"kv_bytes": 3 * GIB}, {"context, gpu": 1, "left on the GPU, gpu": -1}),
        ({"buffers_bytes": GIB}, {"compute buffers, gpu": -2, "left on the GPU, gpu": 2}),
        ({"machine": with_reserve(DESKTOP, 4 * GIB)}, {"system, ram": 3.5, "left in RAM, ram": -3.5}),
    ],
)
def test_an_override_moves_its_term_and_what_is_left(changed: dict[str, object], moved: dict[str, float]) -> None:
    on = changed.pop("machine", DESKTOP)
    assert isinstance(on, Machine)
    before, after = terms(BUDGET), terms(MemoryBudget.of(on, **TAKEN | changed))
    assert {name: after[name] - size for name, size in before.items() if after[name] != size} == moved


def test_a_reserve_that_cannot_be() -> None:
    with pytest.raises(TooLarge, match=r"--reserve 32\.0 GiB: rtx-3090 has 32 GiB of RAM"):
        with_reserve(DESKTOP, 32 * GIB)
    with pytest.raises(Incomplete, match=r"--reserve 1\.00 GiB: rtx-3090 does not give its RAM"):
        with_reserve(replace(DESKTOP, memory=None), GIB)


def test_what_is_asked_of_the_context() -> None:
    with_attention = replace(model(), attention=Attention((LayerCache(32, 32),)))
    assert Context.of_options(300).bytes_of(with_attention) == 512 * 128
    assert Context.of_options(300, kv_type="q8_0").bytes_of(with_attention) == 512 * 68
    assert Context.of_options(300, "1MiB").bytes_of(with_attention) == 1 << 20  # what is given wins
    assert Context.of_options().bytes_of(None) == 0
    with pytest.raises(Incomplete, match="--context 300"):
        Context.of_options(300).bytes_of(model())
    with pytest.raises(OutOfRange, match="--context -1; expected a number of tokens from 0"):
        Context.of_options(-1)
    with pytest.raises(UnknownName, match="unknown --kv-type 'q8'; did you mean 'q8_0'"):
        Context.of_options(kv_type="q8")


def test_what_a_recommended_setting_leaves_free() -> None:
    """Half a GiB for the desktop of each GPU, and 4% of all memory for the error of the plan."""
    assert spare_bytes(machine(gpu_gib=10)) == 0.5 * GIB + round(0.4 * GIB)
    assert spare_bytes(machine(gpu_gib=20, gpus=2)) == GIB + round(0.8 * GIB)
    assert spare_bytes(machine("m3-max-48", gpu_gib=36)) == round(0.04 * 36 * GIB)
    assert spare_bytes(machine("laptop-ddr4")) == 0


def test_the_desktop_is_what_three_quarters_of_cards_lack_beside_the_driver() -> None:
    path = Path(__file__).parents[1] / "data/published/gpu_free_memory.csv"
    with path.open(newline="") as file:
        lacks = [int(row["nominal_mib"]) - int(row["free_mib"]) for row in csv.DictReader(file)]
    gib = estimate("gpu.driver_gib").value + estimate("memory.desktop_gib").value
    within = [lack <= 1024 * gib for lack in lacks]
    assert (len(within), sum(within)) == (11, 8)


@pytest.mark.parametrize(
    ("name", "needed_gib", "limit_mib"),
    [
        ("m2-16", 10.5, 0),  # the default, two thirds, will do
        ("m2-16", 11.8, 12_288),
        ("m2-16", 12.1, 0),  # leaves the system less than 4 GiB
        ("m3-max-48", 39, 39_936),
        ("m3-max-48", 40.1, 0),  # leaves less than 8 GiB
        ("rtx-3090", 23.5, 0),
        ("strix-halo-128", 125, 0),
    ],
)
def test_a_mac_may_give_its_gpu_more(name: str, needed_gib: float, limit_mib: int) -> None:
    gives = f"`sudo sysctl iogpu.wired_limit_mb={limit_mib}` lets the GPU use {limit_mib / 1024:.1f} of {name[-2:]} GiB"
    said = wired_limit_advice(load_machine(name), round(needed_gib * GIB))
    assert said == (f"{gives} until the next start" if limit_mib else "")
