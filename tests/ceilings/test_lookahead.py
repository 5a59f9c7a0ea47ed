"""The lookahead that closes half the gap to min:forced."""

from __future__ import annotations

import numpy as np
import pytest

from flashmoe_sim.ceilings.gap import HalfGap, gap_to_min, half_gap
from flashmoe_sim.ceilings.larger import smallest
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.residency.workload import Workload, prepare
from tests.residency.builders import geometry_of, of_one_layer, run, totals, trace_of
from tests.residency.test_laws import fitting_banks
from tests.residency.test_twins import random_workload


def half(
    workload: Workload, bank: int | Bank, policy: str, contract: str = "atomic", scope: str = "layer"
) -> HalfGap | None:
    own = run(workload, bank, policy, contract, scope=scope, record=True)
    return half_gap(workload, own.setup, gap_to_min(workload, own))


def test_no_gap() -> None:
    assert half(of_one_layer([[0], [1], [0]], 2), 2, "lru") is None
    assert half(of_one_layer([[0], [1], [2], [0], [1], [2]], 3), 2, "min:forced") is None
    assert half(of_one_layer([[0], [1], [0]], 2), 1, "min") is None


def test_no_optimum() -> None:
    workload = prepare(trace_of([(0, [0], 1), (1, [0], 1), (0, [1], 1)] * 3, 2), geometry_of({0: 10, 1: 30}, 2))
    assert half(workload, Bank(budget_bytes=40), "lru", scope="global") is None


def test_by_hand() -> None:
    # Two slots, 0 1 2 0 1 2: LRU misses all 6, min:forced 4, so half the gap is 5.
    # One step ahead: for 2 the next is 0, so 1 goes; 0 hits; for 1 the next is 2, so 0 goes; 2 hits: 4 misses.
    assert half(of_one_layer([[0], [1], [2], [0], [1], [2]], 3), 2, "lru") == HalfGap(1, 4, "atomic")
    # Under `runtime` LRU is counted as `protected`, and so is the same.
    assert half(of_one_layer([[0], [1], [2], [0], [1], [2]], 3), 2, "lru", "runtime") == HalfGap(1, 4, "atomic")


@pytest.mark.parametrize("contract", ["runtime", "atomic", "sequential"])
@pytest.mark.parametrize("scope", ["layer", "global"])
def test_what_is_found_closes_half_the_gap_and_a_power_of_two_below_it_does_not(contract: str, scope: str) -> None:
    found_some = 0
    for seed in range(10):
        workload = random_workload(seed)
        under = "sequential" if contract == "sequential" else "atomic"
        for policy in ("lru", "random", "fifo"):
            for slots in fitting_banks(workload, contract):
                own = run(workload, slots, policy, contract, scope=scope)
                gap = gap_to_min(workload, own)
                found = half_gap(workload, own.setup, gap)
                assert gap.forced is not None
                if gap.policy <= gap.forced:
                    assert found is None
                    continue
                assert found.contract == under
                misses = {
                    steps: totals(run(workload, slots, f"lookahead:steps={steps}", under, scope=scope))["misses"]
                    for steps in range(found.steps + 1)
                }
                assert misses[found.steps] == found.misses
                assert 2 * found.misses <= gap.policy + gap.forced
                doubled = [0, *(2**power for power in range(8) if 2**power < found.steps)]
                assert all(2 * misses[steps] > gap.policy + gap.forced for steps in doubled if steps < found.steps)
                found_some += 1
    assert found_some > 20


def test_a_policy_worse_than_lru_may_need_none() -> None:
    rng = np.random.default_rng(2)
    recent = of_one_layer([[n // 10 % 8, int(rng.integers(8, 16))] for n in range(200)], 16)
    found = half(recent, 2, "demand")
    assert found.steps == 0


@pytest.mark.parametrize("most", range(40))
def test_every_threshold(most: int) -> None:
    for threshold in range(most + 2):
        tried: list[int] = []

        def enough(number: int, threshold: int = threshold, tried: list[int] = tried) -> bool:
            tried.append(number)
            return number >= threshold

        assert smallest(enough, most) == (threshold if threshold <= most else None)
        assert len(tried) == len(set(tried))
        assert all(0 <= number <= most for number in tried)


def test_few_are_tried() -> None:
    tried: list[int] = []
    assert smallest(lambda number: bool(tried.append(number)) or number >= 700_000, 10**6) == 700_000
    assert len(tried) <= 42


def test_what_is_found_is_enough_even_where_more_may_not_be() -> None:
    for pattern in range(1, 2**9):
        found = smallest(lambda number, pattern=pattern: bool(pattern >> number & 1), 8)
        assert found is None or pattern >> found & 1
        assert found is not None or not pattern >> 8 & 1


def test_nothing_to_try() -> None:
    assert smallest(lambda number: True, -1) is None
