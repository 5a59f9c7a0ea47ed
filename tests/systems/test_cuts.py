"""The least number of layers on the CPU, against every number and every cut: 2 to 6 GPUs, like and unlike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from flashmoe_sim.budget import spare_bytes
from flashmoe_sim.geometry.model import LayerGeometry
from flashmoe_sim.io.errors import TooLarge
from flashmoe_sim.io.sizes import GIB, MIB
from flashmoe_sim.machines.machine import Card
from flashmoe_sim.systems.all_gpu import AllGpu
from flashmoe_sim.systems.base import Case
from flashmoe_sim.systems.compare import at_setting
from flashmoe_sim.systems.placed import PlacedLayers
from flashmoe_sim.systems.placed_ik import PlacedIk
from flashmoe_sim.systems.split import gpu_of_layers, shared_out
from tests.systems.cases import case, machine, workload

LAYERS = 7
SEEDS = range(12)


def of(gpus: int, seed: int, *, unlike: bool) -> Case:
    """Seven layers, of which the first has no experts, some with larger experts; any context."""
    draw = np.random.default_rng([gpus, seed, unlike])
    gib = draw.uniform(2.2, 3.2, gpus) if unlike else np.full(gpus, draw.uniform(2.2, 3.2))
    on = case(gpus=gpus, gpu_gib=float(gib.sum()), ram_gib=64)
    if unlike:
        rates = draw.permutation([900, 700, 500, 400, 300, 150])[:gpus]
        cards = [
            Card(f"card {n}", each, float(rate), 20, 20)
            for n, (each, rate) in enumerate(zip(gib.tolist(), rates, strict=True))
        ]
        on = replace(on, machine=replace(on.machine, cards=tuple(cards)))
    layers = {n: LayerGeometry(16, {"ffn_up_exps": int(draw.integers(10, 60)) * MIB}) for n in range(1, LAYERS)}
    model = replace(on.model, layers=layers)
    return replace(on, model=model, kv_bytes=int(draw.integers(0, 1500)) * MIB, leaves_spare=True)


def cuts(gpus: int) -> Iterator[list[int]]:
    """Every way to share the layers and the output out over the GPUs, in order."""

    def of(left: int, gpus: int) -> Iterator[list[int]]:
        if gpus == 1:
            yield [left]
            return
        for first in range(left + 1):
            for rest in of(left - first, gpus - 1):
                yield [first, *rest]

    return of(LAYERS + 1, gpus)


def off_the_gpu(system: type[PlacedLayers], count: int, cut: Sequence[int]) -> set[int]:
    """The layers that --n-cpu-moe empties: llama.cpp's first ones, or the last ones of each GPU."""
    if system is PlacedLayers:
        return set(range(count))
    first, off = 0, set()
    of_layers = [*cut]
    last = max(gpu for gpu, layers in enumerate(cut) if layers)
    of_layers[last] -= 1  # the output
    for layers, given in zip(of_layers, shared_out(count, of_layers), strict=True):
        off |= set(range(first + layers - given, first + layers))
        first += layers
    return off


def fits(on: Case, system: type[PlacedLayers], count: int, cut: Sequence[int]) -> bool:
    """Whether each GPU has room for its layers, its buffers and its part of what is left free."""
    dense, context = on.gpu_dense_bytes // (LAYERS + 1), on.kv_bytes // LAYERS
    gpus, off = on.machine.gpus, off_the_gpu(system, count, cut)
    spare = spare_bytes(on.machine) // gpus
    gibs = [one.memory_gib for one in on.machine.cards] or [1.0] * gpus
    number = 0
    for layers, gib in zip(cut, gibs, strict=True):
        held = on.compute_bytes()
        for _ in range(layers):
            held += dense + (context if number < LAYERS else 0)
            if number in on.model.layers and number not in off:
                held += on.model.layers[number].expert_bytes * 16
            number += 1
        if held > int(on.gpu_bytes * gib / sum(gibs)) - spare:
            return False
    return True


def least(on: Case, system: type[PlacedLayers]) -> int | None:
    gpus = on.machine.gpus
    return next((n for n in range(LAYERS + 1) if any(fits(on, system, n, cut) for cut in cuts(gpus))), None)


@pytest.mark.parametrize("system", [PlacedLayers, PlacedIk])
@pytest.mark.parametrize("unlike", [False, True])
@pytest.mark.parametrize("gpus", range(2, 7))
def test_no_cut_fits_with_fewer_layers_on_the_cpu(gpus: int, unlike: bool, system: type[PlacedLayers]) -> None:
    found = set()
    for seed in SEEDS:
        on = of(gpus, seed, unlike=unlike)
        best = least(on, system)
        if best is None:
            continue
        sized = system().sized(on)
        found.add(best)
        assert sized.cpu_layers == best, (seed, sized.shares(on))
        counts = gpu_of_layers(sized.shares(on), LAYERS)
        assert fits(on, system, best, [counts.count(gpu) for gpu in range(gpus)])
    assert found


@pytest.mark.parametrize("unlike", [False, True])
@pytest.mark.parametrize("gpus", range(2, 5))
def test_the_whole_model_fits_if_a_cut_does(gpus: int, unlike: bool) -> None:
    """The GPUs together have 0 to 60% more than it takes, beside their buffers."""
    outcomes = set()
    for seed in range(40):
        on = replace(of(gpus, seed, unlike=unlike), leaves_spare=False, buffers_bytes=GIB // 8)
        dense, context = on.gpu_dense_bytes // (LAYERS + 1), on.kv_bytes // LAYERS
        experts = [on.model.layers[n].expert_bytes * 16 if n in on.model.layers else 0 for n in range(LAYERS)]
        each = [*(dense + context + size for size in experts), dense]
        gib = (sum(each) * (1 + 0.015 * seed) + gpus * GIB // 8) / GIB
        cards = tuple(replace(card, memory_gib=card.memory_gib * gib * GIB / on.gpu_bytes) for card in on.machine.cards)
        on = replace(on, machine=replace(machine(gpus=gpus, gpu_gib=gib, ram_gib=64), cards=cards))
        sizes = [card.memory_gib for card in cards] or [1.0] * gpus
        room = [int(on.gpu_bytes * size / sum(sizes)) + on.gpu_error_bytes // gpus for size in sizes]

        def fits_by(cut: Sequence[int], each: Sequence[int] = each, room: Sequence[int] = room) -> bool:
            ends = np.cumsum(cut)
            held = (GIB // 8 + sum(each[end - n : end]) for end, n in zip(ends, cut, strict=True))
            return all(h <= r for h, r in zip(held, room, strict=True))

        possible = any(fits_by(cut) for cut in cuts(gpus))
        outcomes.add(possible)
        if possible:
            AllGpu().check(on)
        else:
            with pytest.raises(TooLarge):
                AllGpu().check(on)
    assert outcomes == {True, False}


def test_a_plan_is_tight_if_one_gpu_is() -> None:
    """Three layers of 5.2 GiB on two GPUs of 11: one has two of them and 0.1 GiB left, both together 5."""
    on = replace(case(gpus=2, gpu_gib=22, ram_gib=64), kv_bytes=0, buffers_bytes=GIB // 8, leaves_spare=True)
    layers = {n: LayerGeometry(16, {"ffn_up_exps": 16 * GIB // 5 // 10}) for n in range(3)}
    on = replace(on, model=replace(on.model, layers=layers, dense_bytes=GIB))
    row = at_setting(workload(on.model), on, AllGpu(), interval=False)
    assert row.gpu_free_bytes > 2 * spare_bytes(on.machine)
    assert row.tight
