"""Larger banks: the search finds the same as trying them all."""

from __future__ import annotations

import numpy as np
import pytest

from flashmoe_sim.ceilings.larger import LargerBank, larger_bank
from flashmoe_sim.policies.bank import Bank, parse_bank
from flashmoe_sim.residency.workload import Workload, prepare
from tests.residency.builders import geometry_of, of_one_layer, random_calls, run, totals, trace_of
from tests.residency.test_laws import fitting_banks
from tests.residency.test_twins import byte_banks

CYCLE = of_one_layer([[expert] for _ in range(4) for expert in range(5)], 8)


def random_workload(seed: int) -> Workload:
    """Three layers of experts of three sizes, 60 steps."""
    calls = random_calls(np.random.default_rng(seed), n_experts=12, layers=3, steps=60, width=2)
    return prepare(trace_of(calls, 12), geometry_of({0: 16, 1: 48, 2: 80}, 12))


def larger(workload: Workload, bank: int | Bank, policy: str, contract: str, scope: str = "layer") -> LargerBank:
    return larger_bank(workload, run(workload, bank, policy, contract, scope=scope))


def test_a_cycle() -> None:
    # LRU misses all 20 until the bank holds the cycle of 5; then only the first 5.
    assert larger(CYCLE, 3, "lru", "atomic") == LargerBank(5, halves="5", halves_misses=5, unaliased=None)
    # min hits one more in each of three rounds with every slot: 20 - 3 x 3 = 11 with three, 5 with five.
    assert larger(CYCLE, 3, "min", "atomic") == LargerBank(5, halves="5", halves_misses=5, unaliased=None)
    assert larger(CYCLE, 5, "lru", "atomic") == LargerBank(5, halves=None, halves_misses=None, unaliased=None)
    assert larger(CYCLE, 8, "lru", "atomic") == LargerBank(5, halves=None, halves_misses=None, unaliased=None)


@pytest.mark.parametrize(
    ("policy", "contract"), [("lru", "protected"), ("lru", "atomic"), ("min", "atomic"), ("static", "runtime")]
)
@pytest.mark.parametrize("scope", ["layer", "global"])
def test_the_smallest_that_halves(policy: str, contract: str, scope: str) -> None:
    found_some = 0
    for seed in range(10):
        workload = random_workload(seed)
        sizes = fitting_banks(workload, contract)
        misses = {slots: totals(run(workload, slots, policy, contract, scope=scope))["misses"] for slots in sizes}
        for slots in sizes:
            found = larger(workload, slots, policy, contract, scope)
            enough = [size for size in sizes if size > slots and 2 * misses[size] <= misses[slots] > 0]
            assert found.halves == (str(enough[0]) if enough else None)
            assert found.halves_misses == (misses[enough[0]] if enough else None)
            assert found.full_misses == misses[max(sizes)]
            found_some += bool(enough)
    assert found_some > 5


def test_one_without_aliasing() -> None:
    found_some = 0
    for seed in range(10):
        workload = random_workload(seed)
        sizes = fitting_banks(workload, "runtime")
        aliased = {slots: totals(run(workload, slots, "lru", "runtime"))["aliased"] for slots in sizes}
        for slots in sizes:
            found = larger(workload, slots, "lru", "runtime").unaliased
            if not aliased[slots]:
                assert found is None
                continue
            assert found is not None
            assert aliased[int(found)] == 0
            assert int(found) > slots
            found_some += 1
    assert found_some > 10


@pytest.mark.parametrize("scope", ["layer", "global"])
def test_banks_of_bytes(scope: str) -> None:
    found_some = 0
    for seed in range(10):
        workload = random_workload(seed)
        sizes = workload.expert_bytes
        assert sizes is not None
        *smaller, full = byte_banks(workload, scope)
        for bank in smaller:
            found = larger(workload, bank, "lru", "atomic", scope)
            everything = totals(run(workload, full, "lru", scope=scope))
            assert found.full_misses == everything["misses"]
            now = totals(run(workload, bank, "lru", scope=scope))["misses"]
            if found.halves is None:
                assert 2 * everything["misses"] > now
                continue
            halving = parse_bank(found.halves)
            steps = (halving.budget_bytes - bank.budget_bytes) / sum(sizes)
            assert steps > 0
            assert totals(run(workload, halving, "lru", scope=scope))["misses"] == found.halves_misses <= now / 2
            found_some += 1
    assert found_some > 10


def test_bytes_are_rounded_up_to_whole_units() -> None:
    trace = trace_of([(layer, [expert], 1) for _ in range(4) for expert in range(5) for layer in (0, 1)], 8)
    workload = prepare(trace, geometry_of({0: 700_000, 1: 800_000}, 8))  # 1.5 MB: steps are of whole MiB
    found = larger(workload, Bank(budget_bytes=3_000_000), "lru", "atomic")
    assert (found.halves, found.halves_misses, found.full_misses) == ("8MiB", 10, 10)
