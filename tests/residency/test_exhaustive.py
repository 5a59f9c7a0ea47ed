"""`min` misses as little as any decisions could, found by trying them all; no other policy misses less."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from flashmoe_sim.policies.table import POLICIES
from flashmoe_sim.residency.workload import Workload, prepare
from tests.residency import search
from tests.residency.builders import Call, run, totals, trace_of
from tests.residency.test_twins import INSTALLING, PAIRS

CASES = 300


def tiny_calls(seed: int) -> tuple[list[Call], int]:
    """Up to 9 calls of up to 3 of at most 5 experts, repeats included."""
    rng = np.random.default_rng(seed)
    n_experts = int(rng.integers(2, 6))
    calls = [(0, rng.integers(0, n_experts, rng.integers(1, 4)).tolist(), 1) for _ in range(int(rng.integers(4, 10)))]
    return calls, n_experts


def misses(workload: Workload, slots: int, policy: str, contract: str, scope: str = "layer") -> int:
    return totals(run(workload, slots, policy, contract, scope=scope))["misses"]


def largest_call(calls: list[Call]) -> int:
    return max(len(set(experts)) for _, experts, _ in calls)


@pytest.mark.parametrize(
    ("policy", "contract", "fewest", "choices"),
    [
        ("min", "atomic", search.fewest_misses, search.bypass),
        ("min:forced", "atomic", search.fewest_misses, search.forced),
        ("min:forced", "protected", search.fewest_misses, search.forced),
        ("min", "sequential", search.fewest_misses_one_by_one, search.bypass),
        ("min:forced", "sequential", search.fewest_misses_one_by_one, search.forced),
    ],
)
def test_one_layer(policy: str, contract: str, fewest: Callable[..., int], choices: search.Choices) -> None:
    for seed in range(CASES):
        calls, n_experts = tiny_calls(seed)
        workload = prepare(trace_of(calls, n_experts))
        for slots in range(largest_call(calls) if contract == "protected" else 1, n_experts + 1):
            expected = fewest([tuple(experts) for _, experts, _ in calls], slots, choices)
            assert misses(workload, slots, policy, contract) == expected, (seed, slots)


@pytest.mark.parametrize(
    ("policy", "contract", "choices"),
    [
        ("min", "atomic", search.bypass),
        ("min:forced", "atomic", search.forced),
        ("min:forced", "protected", search.forced),
    ],
)
def test_a_global_bank(policy: str, contract: str, choices: search.Choices) -> None:
    """Two layers of two or three experts that share a bank of two slots for each."""
    for seed in range(CASES // 2):
        rng = np.random.default_rng(seed)
        n_experts = int(rng.integers(2, 4))
        calls: list[Call] = [
            (layer, rng.integers(0, n_experts, rng.integers(1, 3)).tolist(), 1)
            for _ in range(int(rng.integers(2, 6)))
            for layer in range(2)
        ]
        workload = prepare(trace_of(calls, n_experts))
        together = [tuple(layer * n_experts + expert for expert in experts) for layer, experts, _ in calls]
        for slots in range(1, n_experts + 1):
            if contract == "protected" and largest_call(calls) > 2 * slots:
                continue
            expected = search.fewest_misses(together, 2 * slots, choices)
            assert misses(workload, slots, policy, contract, scope="global") == expected, (seed, slots)


@pytest.mark.parametrize("contract", ["atomic", "sequential"])
def test_nothing_beats_min(contract: str) -> None:
    policies = [policy for other, policy in PAIRS if other == contract]
    assert {"min", "lru", "static", "demand"} <= set(policies)
    for seed in range(CASES // 8):
        calls, n_experts = tiny_calls(seed)
        workload = prepare(trace_of(calls, n_experts))
        for slots in range(1, n_experts + 1):
            least = misses(workload, slots, "min", contract)
            for policy in policies:
                # Pinned experts are there from the start: their first request hits where min's misses.
                gift = slots if POLICIES[policy].preloaded else 0
                assert misses(workload, slots, policy, contract) + gift >= least, (policy, seed, slots)


@pytest.mark.parametrize("contract", ["protected", "atomic", "sequential"])
def test_nothing_that_must_admit_beats_forced_min(contract: str) -> None:
    policies = [
        name
        for other, name in INSTALLING
        if other == contract and not POLICIES[name].bypass and "admits" not in POLICIES[name].kernels
    ]
    for seed in range(CASES // 8):
        calls, n_experts = tiny_calls(seed)
        workload = prepare(trace_of(calls, n_experts))
        for slots in range(largest_call(calls) if contract == "protected" else 1, n_experts + 1):
            least = misses(workload, slots, "min:forced", contract)
            for policy in policies:
                assert misses(workload, slots, policy, contract) >= least, (policy, seed, slots)
