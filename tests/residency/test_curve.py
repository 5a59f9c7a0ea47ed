"""The passes that serve several bank sizes at once count what one replay of each size counts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashmoe_sim.io.errors import Unsupported
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.policies.table import POLICIES, parse_policy
from flashmoe_sim.residency.curve import hit_curve, one_pass_policy, pool_curve
from flashmoe_sim.residency.workload import Workload
from tests.residency.builders import one_layer, random_calls, run
from tests.residency.compare import workload_of
from tests.residency.test_twins import random_workload

CURVES = [
    (contract, policy)
    for policy, kind in POLICIES.items()
    for contract in kind.contracts
    if one_pass_policy(parse_policy(policy), contract)
]


def assert_curve(workload: Workload, policy: str, contract: str, sizes: range | list[int] | None = None) -> None:
    """Every size of the curve equals a replay, in each layer."""
    curves = [pool_curve(pool, parse_policy(policy)) for pool in workload.layer_pools]
    smallest = max(curve.smallest for curve in curves)
    for slots in sizes or range(1, max(workload.n_experts) + 1):
        if slots < smallest:
            continue
        table = run(workload, slots, policy, contract).counts.table
        found = [curve.counts(min(slots, n)) for curve, n in zip(curves, workload.n_experts, strict=True)]
        assert np.array_equal(table, found), (policy, contract, slots)


def test_which_have_a_curve() -> None:
    static = [(contract, "static") for contract in ("runtime", "protected", "atomic")]
    assert sorted(CURVES) == sorted([("protected", "lru"), ("atomic", "lru"), ("atomic", "min"), *static])
    assert not one_pass_policy(parse_policy("lru:stamp=last"), "atomic")
    assert one_pass_policy(type("Same", (Lru,), {"name": "same"})(), "atomic")
    assert not one_pass_policy(type("Other", (Lru,), {"name": "other", "kernels": Lru.kernels})(), "atomic")
    assert not one_pass_policy(parse_policy("min:forced"), "atomic")


def test_smallest() -> None:
    """The curve of LRU begins at the largest call, that of min at one slot."""
    (pool,) = workload_of(one_layer([[0, 1], [2, 3, 4], [1]]), {0: 8}).layer_pools
    assert pool_curve(pool, parse_policy("lru")).smallest == 3
    assert pool_curve(pool, parse_policy("min")).smallest == 1


@pytest.mark.parametrize(("contract", "policy"), CURVES)
def test_small_traces_at_every_size(contract: str, policy: str) -> None:
    for seed in range(20):
        assert_curve(random_workload(seed), policy, contract)


@pytest.mark.parametrize(("contract", "policy"), CURVES)
@settings(max_examples=60)
@given(calls=st.lists(st.lists(st.integers(0, 7), max_size=10), min_size=1, max_size=30).filter(any))
def test_any_trace(contract: str, policy: str, calls: list[list[int]]) -> None:
    assert_curve(workload_of(one_layer(calls), {0: 8}), policy, contract)


@pytest.mark.parametrize(("contract", "policy"), CURVES)
def test_the_curve_of_a_workload(contract: str, policy: str) -> None:
    for seed in range(6):
        workload = random_workload(seed)
        curve = hit_curve(workload, parse_policy(policy), contract=contract)
        smallest = 1 if policy != "lru" else max(int(pool.requests.max()) for pool in workload.layer_pools)
        assert list(curve) == list(range(smallest, max(workload.n_experts) + 1))
        for slots, found in curve.items():
            counts = run(workload, slots, policy, contract).counts
            assert np.array_equal(found.table, counts.table)
            assert found.total() == counts.total()


def test_a_policy_without_a_curve_is_refused() -> None:
    with pytest.raises(Unsupported, match="policy fifo has no one-pass curve under the contract atomic"):
        hit_curve(random_workload(0), parse_policy("fifo"))
    with pytest.raises(Unsupported, match="policy lru has no one-pass curve under the contract runtime"):
        hit_curve(random_workload(0), parse_policy("lru"), contract="runtime")


@pytest.mark.parametrize("n_experts", [255, 256, 257, 300, 512])
@pytest.mark.parametrize(("contract", "policy"), CURVES)
def test_ranks_of_one_and_two_bytes(contract: str, policy: str, n_experts: int) -> None:
    """LRU's list of up to 256 experts is kept in bytes. Every expert is used, so the places reach the last."""
    rng = np.random.default_rng(n_experts)
    calls = random_calls(rng, n_experts=n_experts, steps=60, most_tokens=2, width=4)
    everything = rng.permutation(n_experts)
    calls += [(0, part.tolist(), 1) for part in np.array_split(everything, n_experts // 6)]
    calls += random_calls(rng, n_experts=n_experts, steps=60, most_tokens=2, width=4)
    workload = workload_of(calls, {0: n_experts})
    assert_curve(workload, policy, contract, sizes=range(1, n_experts + 1))


@pytest.mark.parametrize("tokens", [2, 8, 40])
@pytest.mark.parametrize(("contract", "policy"), CURVES)
def test_calls_of_many_distinct_experts(contract: str, policy: str, tokens: int) -> None:
    """More than 8 and more than 32 experts a call, repeats included, between calls of a single token."""
    rng = np.random.default_rng(tokens)
    calls = random_calls(rng, n_experts=128, layers=2, steps=40, most_tokens=tokens, width=4)
    calls += random_calls(rng, n_experts=128, layers=2, steps=20, most_tokens=1, width=4)
    workload = workload_of(calls, {0: 128, 1: 128})
    largest = max(int(pool.requests.max()) for pool in workload.layer_pools)
    assert largest > {2: 4, 8: 8, 40: 32}[tokens]
    assert_curve(workload, policy, contract)
