"""Sizes of layers: as good as the best of all combinations, tried one by one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from flashmoe_sim.tune import knapsack
from flashmoe_sim.tune.knapsack import cheapest

Costs = list[NDArray[np.float64]]
INF = float("inf")


def best_of_all(costs: Costs, expert_bytes: Sequence[int], budget_bytes: int) -> float:
    """The least cost of any sizes that fit; infinite if none do."""
    return min(
        (
            sum(float(cost[slots]) for cost, slots in zip(costs, chosen, strict=True))
            for chosen in product(*(range(len(cost)) for cost in costs))
            if sum(slots * size for slots, size in zip(chosen, expert_bytes, strict=True)) <= budget_bytes
        ),
        default=INF,
    )


def check(costs: Costs, expert_bytes: Sequence[int], budget_bytes: int) -> float:
    """What is found fits, costs what it says, and misses the optimum by no more than its gap; the gap."""
    best, found = best_of_all(costs, expert_bytes, budget_bytes), cheapest(costs, expert_bytes, budget_bytes)
    if found is None:
        assert best == INF
        return 0.0
    assert sum(slots * size for slots, size in zip(found.slots, expert_bytes, strict=True)) <= budget_bytes
    cost = sum(float(one[slots]) for one, slots in zip(costs, found.slots, strict=True))
    assert found.cost == pytest.approx(cost)
    assert best <= cost * (1 + 1e-12) <= (best + found.gap) * (1 + 1e-9)
    return found.gap


@st.composite
def layers(draw: st.DrawFn) -> tuple[Costs, list[int], int]:
    """Up to 4 layers of up to 5 slots, with curves of any shape; some sizes cannot be had."""
    price = st.one_of(st.integers(0, 40), st.just(INF))
    costs = [
        np.array(draw(st.lists(price, min_size=2, max_size=6)), np.float64) for _ in range(draw(st.integers(1, 4)))
    ]
    expert_bytes = [draw(st.sampled_from([3, 5, 7, 8])) for _ in costs]
    return costs, expert_bytes, draw(st.integers(0, 100))


@settings(max_examples=200)
@given(layers())
def test_the_optimum(case: tuple[Costs, list[int], int]) -> None:
    assert check(*case) == 0


def test_the_optimum_of_falling_curves() -> None:
    """As misses are: falling, of any curvature, with a least size; and experts of 1 to 4 sizes."""
    rng = np.random.default_rng(3)
    for case in range(24):
        costs = [np.sort(rng.integers(0, 1000, 7))[::-1].astype(np.float64) for _ in range(4)]
        for cost in costs:
            cost[: case % 3] = INF
        expert_bytes = rng.choice([9, 10, 13, 14][: case % 4 + 1], 4).tolist()
        for budget_bytes in range(0, 4 * 14 * 6, 37):
            assert check(costs, expert_bytes, budget_bytes) == 0


def test_the_gap_if_there_are_too_many_to_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knapsack, "MOST_TRIED", 0)
    rng, gaps = np.random.default_rng(4), []
    for _ in range(60):
        costs = [np.sort(rng.integers(0, 1000, 7))[::-1].astype(np.float64) for _ in range(4)]
        gaps.append(check(costs, [9, 10, 13, 14], int(rng.integers(50, 250))))
    assert max(gaps) > 0


def test_next_best_slots_would_not_do() -> None:
    """A cliff at three slots is worth more than three slots one by one, of which the first gain nothing."""
    cliff, slope = np.array([90.0, 90, 90, 0]), np.array([30.0, 20, 12, 6])
    found = cheapest([cliff, slope], [1, 1], 3)
    assert found is not None
    assert (found.slots, found.cost) == ((3, 0), 30)


def test_equal_convex_curves_get_equal_slots() -> None:
    curve = np.array([100.0, 60, 35, 20, 12, 8])
    found = cheapest([curve] * 5, [7] * 5, 5 * 7 * 3)
    assert found is not None
    assert found.slots == (3,) * 5
