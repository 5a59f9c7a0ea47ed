"""Every replay loop gives exactly what its plain twin gives."""

from __future__ import annotations

import os
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.base import ALL_CONTRACTS, EvictingPolicy
from flashmoe_sim.policies.table import POLICIES
from flashmoe_sim.prefetchers.table import PREFETCHERS, WITHOUT_FILE
from flashmoe_sim.residency.workload import Workload
from tests.policies.naive.table import EVICTING, SCHEDULED, SCHEDULED_VARIANTS
from tests.residency import naive
from tests.residency.builders import random_calls
from tests.residency.compare import assert_twins, workload_of

# A policy's functions are the same under every contract, and compiled for each: some do for the one that nobody runs.
SEQUENTIAL = ("demand", "lru", "fifo", "random", "lfu", "arc", "lecar", "s3fifo", "static", "min", "min:forced")
PAIRS = [
    (contract, policy)
    for policy, kind in POLICIES.items()
    for contract in kind.contracts
    if contract != "sequential" or policy in SEQUENTIAL or os.environ.get("FLASHMOE_EVERY_SIZE") == "all"
]
VARIANTS = [
    (contract, name)
    for name in (*EVICTING, *naive.PINNING, *SCHEDULED_VARIANTS)
    if "=" in name
    for contract in POLICIES[name.split(":")[0]].contracts
    if (contract, name.split(":")[0]) in PAIRS
]
STAMPED = [
    (contract, f"{policy}:stamp={stamp}")
    for policy in ("lru", "fifo", "lfu")
    for stamp in ("last", "hits-first", "reverse", "hits-first-sorted")
    for contract in POLICIES[policy].contracts
    if contract in ("protected", "atomic")  # the runtime has its own order; a sequential call is one reference
]
INSTALLING = [(contract, policy) for contract, policy in PAIRS if issubclass(POLICIES[policy], EvictingPolicy)]
PREFETCHING = [
    (contract, policy, prefetch)
    for prefetch in WITHOUT_FILE
    if prefetch != "none"
    for contract, policy in INSTALLING
    if contract in PREFETCHERS[prefetch].contracts and policy in ("lru", "fifo", "lfu", "random", "min", "min:forced")
]


@cache
def random_workload(seed: int, *, same_size: bool = False) -> Workload:
    """Up to 4 layers, some with fewer experts or calls than others, of up to 3 tokens a call, repeats included.

    The calls of seed 2 have up to 3 tokens or none.
    """
    rng = np.random.default_rng(seed)
    n_experts = int(rng.integers(3, 13))
    calls = random_calls(
        rng,
        n_experts=n_experts,
        layers=int(rng.integers(1, 5)),
        steps=int(rng.integers(1, 14)),
        most_tokens=int(rng.integers(1, 4)),
        missing=float(rng.choice([0.0, 0.3])),
        idle=0.3 if seed == 2 else 0.0,
    )
    numbers = sorted({layer for layer, _, _ in calls})
    # The model's layers are numbered with a gap, and need not have the same number of experts.
    number = {layer: 3 + 2 * layer for layer in numbers}
    most = {
        layer: max((expert for other, experts, _ in calls if other == layer for expert in experts), default=0)
        for layer in numbers
    }
    spare = {layer: int(rng.integers(most[layer] + 1, n_experts + 1)) for layer in numbers}
    size = {layer: 48 if same_size else int(rng.integers(1, 9)) * 16 for layer in numbers}
    return workload_of(
        [(number[layer], experts, tokens) for layer, experts, tokens in calls],
        {number[layer]: spare[layer] for layer in numbers},
        {number[layer]: size[layer] for layer in numbers},
    )


def every_bank(workload: Workload) -> list[Bank]:
    return [Bank(slots=slots) for slots in range(1, max(workload.n_experts) + 1)]


def byte_banks(workload: Workload, scope: str) -> list[Bank]:
    """From one expert of the largest layer to everything."""
    layers = len(workload.n_experts)
    least = max(workload.expert_bytes) * (layers if scope == "layer" else 1)
    everything = max(workload.expert_bytes) * max(workload.n_experts) * layers
    return [Bank(budget_bytes=int(size)) for size in np.linspace(least, max(everything, least), 7)]


def test_every_policy_has_a_twin() -> None:
    assert set(POLICIES) == {name for name in EVICTING if "=" not in name} | {
        name for name in naive.PINNING if "=" not in name
    } | set(SCHEDULED)


@pytest.mark.parametrize(("contract", "policy"), PAIRS + VARIANTS + STAMPED)
def test_slots(contract: str, policy: str) -> None:
    for seed in (0, 3):
        workload = random_workload(seed)
        for bank in every_bank(workload):
            for scope in ("layer", "global"):
                assert_twins(workload, bank, policy, contract, scope=scope)


@pytest.mark.parametrize(
    ("seed", "policy"),
    [
        (302024, "bounded-swaps:every=1:gain=0.0:least=0.0"),
        (614677, "hot-window:interval=1:warm_up=True"),
        (337898, "hot-window:interval=2:count=reference:observe=last:warm_up=True"),
    ],
)
def test_what_comes_before_the_first_call_of_its_layer(seed: int, policy: str) -> None:
    workload = random_workload(seed)
    for bank in every_bank(workload):
        for scope in ("layer", "global"):
            assert_twins(workload, bank, policy, "atomic", scope=scope)


@pytest.mark.parametrize(("contract", "policy"), PAIRS + VARIANTS)
def test_bytes_of_each_layer_and_of_all(contract: str, policy: str) -> None:
    workload = random_workload(3)
    for bank in byte_banks(workload, "layer"):
        assert_twins(workload, bank, policy, contract)
    pinning = policy in naive.PINNING
    workload = random_workload(3, same_size=contract in ("runtime", "protected") and not pinning)
    for bank in byte_banks(workload, "layer" if pinning else "global"):
        assert_twins(workload, bank, policy, contract, scope="global")


@pytest.mark.parametrize(("contract", "policy"), INSTALLING)
def test_warm_start(contract: str, policy: str) -> None:
    for seed, warm, prefetch in ((0, "trace", "none"), (3, "first-2", "none"), (2, "trace", "oracle-1")):
        workload = random_workload(seed)
        predicts = contract in PREFETCHERS[prefetch].contracts
        for bank in every_bank(workload)[:: 1 if seed == 0 else 3]:
            for scope in ("layer", "global"):
                ahead = prefetch if predicts else "none"
                assert_twins(workload, bank, f"{policy}:warm={warm}", contract, scope=scope, prefetch=ahead)
        if contract == "atomic":
            for bank in byte_banks(workload, "global")[::2]:
                assert_twins(workload, bank, f"{policy}:warm={warm}", contract, scope="global")


@pytest.mark.parametrize(("contract", "policy", "prefetch"), PREFETCHING)
def test_prefetch(contract: str, policy: str, prefetch: str) -> None:
    """On one of two workloads, with the next of these on the other."""
    workload = random_workload(2 * (PREFETCHING.index((contract, policy, prefetch)) % 2))
    for bank in every_bank(workload):
        for scope in ("layer", "global"):
            assert_twins(workload, bank, policy, contract, scope=scope, prefetch=prefetch)
    if contract == "atomic":
        for bank in byte_banks(workload, "global"):
            assert_twins(workload, bank, policy, contract, scope="global", prefetch=prefetch)


@pytest.mark.parametrize("contract", ALL_CONTRACTS)
@settings(max_examples=40)
@given(data=st.data())
def test_any_trace(contract: str, data: st.DataObject) -> None:
    """Traces of any shape: any order of layers, empty calls, every expert the same."""
    policy = data.draw(st.sampled_from([policy for other, policy in INSTALLING if other == contract]))
    n_experts = data.draw(st.integers(1, 6))
    call = st.tuples(st.integers(0, 2), st.lists(st.integers(0, n_experts - 1), max_size=6), st.integers(0, 3))
    calls = data.draw(st.lists(call, min_size=1, max_size=20).filter(lambda calls: any(call[1] for call in calls)))
    workload = workload_of(calls, dict.fromkeys({layer for layer, _, _ in calls}, n_experts))
    predictors = [name for name in WITHOUT_FILE if contract in PREFETCHERS[name].contracts]
    prefetch = data.draw(st.sampled_from(predictors))
    scope = data.draw(st.sampled_from(["layer", "global"]))
    for bank in every_bank(workload):
        assert_twins(workload, bank, policy, contract, scope=scope, prefetch=prefetch)


@pytest.mark.parametrize(("contract", "policy"), INSTALLING)
def test_many_experts(contract: str, policy: str) -> None:
    n_experts = 300
    rng = np.random.default_rng(n_experts)
    calls = random_calls(rng, n_experts=n_experts, layers=2, steps=30, most_tokens=3, width=8)
    workload = workload_of(calls, {0: n_experts, 1: n_experts})
    for slots in (1, 24, n_experts):
        assert_twins(workload, Bank(slots=slots), policy, contract)
