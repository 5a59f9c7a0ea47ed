"""The passes that serve several bank sizes at once count what one replay of each size counts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashmoe_sim.errors import BadInput
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.policies.table import POLICIES, parse_policy
from flashmoe_sim.prefetchers.predict_top1 import PredictTop1
from flashmoe_sim.residency.counts import Counts
from flashmoe_sim.residency.curve import hit_curve, one_pass_policy, pool_curve
from flashmoe_sim.residency.many import plan_jobs
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.residency.workload import Workload
from tests.residency.builders import one_layer, random_calls, run
from tests.residency.compare import workload_of
from tests.residency.test_twins import byte_banks, random_workload

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
    assert not one_pass_policy(type("Other", (Lru,), {"name": "other"})(), "atomic")
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
@settings(max_examples=60, deadline=None)
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
    with pytest.raises(BadInput, match="policy fifo has no one-pass curve under the contract atomic"):
        hit_curve(random_workload(0), parse_policy("fifo"))
    with pytest.raises(BadInput, match="policy lru has no one-pass curve under the contract runtime"):
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


@pytest.mark.parametrize("scope", ["layer", "global"])
def test_jobs_count_what_replays_count(scope: str) -> None:
    """Any choice of sizes, policies and contracts, whichever passes serve them; unions may exceed the bank."""
    # Every other policy is planned as these are: each setup is a replay of its own.
    chosen = ("demand", "lru", "fifo", "static", "static:global", "hot-window", "min", "min:forced")
    pairs = [(contract, policy) for policy in chosen for contract in POLICIES[policy].contracts]
    for seed in range(10):
        rng = np.random.default_rng(seed)
        workload = random_workload(seed)
        largest = max(int(pool.requests.max()) for pool in workload.layer_pools)
        setups = [
            Setup(Bank(slots=slots), parse_policy(policy), contract, scope=scope)
            for contract, policy in pairs
            for slots in range(1, max(workload.n_experts) + 1)
            if rng.random() < 0.5 and (contract == "atomic" or largest <= slots <= min(workload.n_experts))
        ]
        if scope == "layer":
            room = range(largest, max(workload.n_experts) + 1)
            setups += [Setup(Bank(slots=n), contract="protected", prefetch=PredictTop1()) for n in room]
        else:
            setups += [Setup(bank, parse_policy("lru"), "atomic", scope=scope) for bank in byte_banks(workload, scope)]
        found: dict[Setup, Counts] = {}
        for job in plan_jobs(workload, setups):
            for setup, counts in job().items():
                found[setup] = found[setup].joined(counts) if setup in found else counts
        assert set(found) == set(setups)
        for setup in setups:
            counts = replay(workload, setup).counts
            assert np.array_equal(found[setup].table, counts.table), setup
            assert found[setup].total() == counts.total()
            assert found[setup].by_layer() == counts.by_layer()


@pytest.mark.parametrize("steps", [5, 60, 400])
def test_global_lru_in_bytes_and_slots(steps: int) -> None:
    """One walk over a bank for all layers equals replays, for experts of different sizes and lists that are moved."""
    for seed in range(4):
        calls = random_calls(np.random.default_rng(seed), n_experts=12, layers=3, steps=steps, most_tokens=2)
        layers = sorted({layer for layer, _, _ in calls})
        workload = workload_of(calls, dict.fromkeys(layers, 12), {layer: 16 + 24 * layer for layer in layers})
        setups = [Setup(Bank(slots=slots), parse_policy("lru"), "atomic", scope="global") for slots in range(1, 13)]
        setups += [
            Setup(bank, parse_policy("lru"), "atomic", scope="global") for bank in byte_banks(workload, "global")
        ]
        found: dict[Setup, Counts] = {}
        for job in plan_jobs(workload, setups):
            found |= job()
        for setup in setups:
            assert np.array_equal(found[setup].table, replay(workload, setup).counts.table), setup
