"""Several unlike GPUs: where layers go, how fast they are then, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from flashmoe_sim.budget import spare_bytes
from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.machines.cards import distributed, factors
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.machine import Card
from flashmoe_sim.systems.all_gpu import AllGpu
from flashmoe_sim.systems.base import Case, System
from flashmoe_sim.systems.compare import at_setting, speed_of
from flashmoe_sim.systems.hot_cache import HotCache
from flashmoe_sim.systems.ktransformers import KTransformers
from flashmoe_sim.systems.placed import PlacedLayers
from flashmoe_sim.systems.placed_ik import PlacedIk
from flashmoe_sim.systems.split import fastest_first, gpu_of_layers, rooms
from tests.systems.cases import case, served_by, workload

OTHERS = "ryzen-5950x + 64GiB + nvme-gen4"
FAST, SLOW = "rtx-3090", "rtx-3060"


def of(*cards: str, model: str = "gpt-oss-120b") -> Case:
    return Case(load_model(model), load_machine(" + ".join((*cards, OTHERS))))


def unlike(*cards: Card) -> Case:
    """A made model on these cards, whose `gpu` has the rates of the first."""
    small = case(gpus=len(cards), gpu_gib=sum(card.memory_gib for card in cards), experts=160)
    return replace(small, machine=replace(small.machine, cards=cards))


def tok_s(system: System, on: Case) -> float:
    found = at_setting(workload(on.model), on, system, interval=False)
    assert found.tok_s is not None, found.why_not
    return found.tok_s


def test_the_mean_of_times_is_by_what_each_card_serves() -> None:
    """Three quarters at 800 GB/s and a quarter at 200 take 0.9375 and 1.25 ms a GB: 457 GB/s together."""
    cards = Card("a", 24, 800, 30, 20), Card("b", 8, 200, 10, 5)
    found = factors(cards, read=[3, 1], attended=[1, 0], copied=[0, 0])
    assert 800 * found["gpu.weights_gb_s"] == pytest.approx(1 / (0.75 / 800 + 0.25 / 200))
    arithmetic = 1 / (0.75 / 24_000 + 0.25 / 2_000)
    assert 800 * 30 * found["gpu.weights_gb_s"] * found["gpu.knee_tokens"] == pytest.approx(arithmetic)
    assert found["gpu.attention_gb_s"] == 1
    assert 20 * found["link.pinned_gb_s"] == pytest.approx(1 / (0.75 / 20 + 0.25 / 5))


def test_a_machine_has_the_mean_of_its_cards_by_memory() -> None:
    both, fast, slow = (of(*cards).machine for cards in ((FAST, SLOW), (FAST,), (SLOW,)))
    assert [card.name for card in both.cards] == [FAST, SLOW]
    assert both == load_machine(f"{SLOW} + {FAST} + {OTHERS}"), "the fastest first, as CUDA counts them"
    assert both.gpus == 2
    memory = [machine.gpu.memory_gib.value for machine in (fast, slow)]  # type: ignore[union-attr]
    rates = [machine.gpu.weights_gb_s.value for machine in (fast, slow)]  # type: ignore[union-attr]
    assert both.gpu.memory_gib.value == pytest.approx(sum(memory))  # type: ignore[union-attr]
    mean = sum(memory) / sum(gib / rate for gib, rate in zip(memory, rates, strict=True))
    assert both.gpu.weights_gb_s.value == pytest.approx(mean, rel=1e-3)  # type: ignore[union-attr]
    alone = distributed(both, read=[1, 0], attended=[1, 0], copied=[1, 0])
    for path, quantity in fast.quantities():
        if path != "gpu.memory_gib":
            assert dict(alone.quantities())[path].value == pytest.approx(quantity.value, rel=1e-3), path


def test_slow_cards_get_as_few_layers_as_they_can() -> None:
    """Against every way to cut six layers: no cut that fits gives the slowest card less, then the next slowest."""
    rng = np.random.default_rng(5)
    fitted = 0
    for _ in range(60):
        sizes_gib = zip(rng.integers(3, 9, 3), rng.permutation([900, 400, 150]), strict=True)
        cards = tuple(Card(f"card {n}", float(gib), float(rate), 20, 20) for n, (gib, rate) in enumerate(sizes_gib))
        sizes, taken = (rng.integers(1, 6, 6) * GIB // 2).tolist(), (rng.integers(0, 2, 3) * GIB // 4).tolist()
        small = unlike(*cards)
        free = [room - held for room, held in zip(rooms(small, spare_bytes(small.machine)), taken, strict=True)]

        def load(cut: Sequence[int], gpu: int, sizes: list[int] = sizes) -> int:
            return sum(sizes[sum(cut[:gpu]) : sum(cut[: gpu + 1])])

        cuts = [cut for cut in product(range(7), repeat=3) if sum(cut) == 6]
        fitting = [cut for cut in cuts if all(load(cut, gpu) <= free[gpu] for gpu in range(3))]
        found = fastest_first(small, sizes, taken)
        assert sum(found) == 6
        if fitting:
            fitted += 1
            slowest = sorted(range(3), key=lambda gpu: cards[gpu].weights_gb_s)
            assert [load(found, gpu) for gpu in slowest] == min([load(cut, gpu) for gpu in slowest] for cut in fitting)
    assert 20 < fitted < 60


@pytest.mark.parametrize("system", [AllGpu(), PlacedLayers(cpu_layers=0), PlacedIk(cpu_layers=0)])
def test_what_fits_the_fast_card_is_as_fast_as_on_it_alone(system: System) -> None:
    alone, both = (of(*cards, model="gpt-oss-20b") for cards in ((FAST,), (FAST, SLOW)))
    assert "-ts 25,0 " in system.launch(both).line
    assert tok_s(system, both) == pytest.approx(tok_s(system, alone), rel=2e-3)


@pytest.mark.parametrize("system", [PlacedLayers(cpu_layers=28), PlacedIk(cpu_layers=28)])
@pytest.mark.parametrize("slow", ["rtx-3060", "gtx-1660", "rtx-4060-ti"])
def test_a_second_gpu_never_slows_a_plan_that_the_first_can_hold(system: System, slow: str) -> None:
    alone, both = of(FAST), of(FAST, slow)
    assert tok_s(system, both) >= 0.998 * tok_s(system, alone)


def test_a_second_card_holds_experts_that_the_cpu_had() -> None:
    alone, both = of(FAST), of(FAST, SLOW)
    before, after = PlacedLayers().sized(alone), PlacedLayers().sized(both)
    assert after.cpu_layers < before.cpu_layers
    assert tok_s(after, both) > 1.1 * tok_s(before, alone)
    cuts = gpu_of_layers(after.shares(both), 36)
    assert after.overflow(both) is None
    assert cuts.count(0) > cuts.count(1) > 0


@pytest.mark.parametrize(
    ("system", "why"),
    [
        (HotCache(), "is known for one GPU only; the machine has 2"),
        (KTransformers(experts=8), "divides each layer over equal GPUs; the machine has rtx-3090 and rtx-3060"),
    ],
)
def test_what_is_known_for_one_or_for_equal_gpus_says_so(system: System, why: str) -> None:
    on = of(FAST, SLOW)
    assert system.why_not(replace(on, model=served_by(system, on.model))) == why


def test_a_measured_speed_is_of_the_layers_where_they_are() -> None:
    """The speed on a varied machine is the one that a comparison gives on it, also if its GPUs are unlike."""
    both, plan = of(FAST, SLOW), PlacedLayers(cpu_layers=20)
    faster = both.machine.scaled({"gpu.weights_gb_s": 1.5, "cpu.weights_gb_s": 1.2})
    speed = speed_of(workload(both.model), both, plan)
    assert speed(both.machine) == pytest.approx(tok_s(plan, both), rel=1e-6)
    assert speed(faster) == pytest.approx(tok_s(plan, replace(both, machine=faster)), rel=0.03)
