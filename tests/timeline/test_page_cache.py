"""The page cache against a plain LRU of whole experts, and what it is at its ends."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest

from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.residency.replay import Replayed
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.timeline.page_cache import warm_reads
from tests.prefetchers.test_twins import random_trace
from tests.residency.builders import geometry_of, run

SPECS = (
    ("lru", "runtime", "none"),
    ("lru", "atomic", "temporal"),
    ("demand", "atomic", "none"),
    ("placed", "atomic", "none"),  # whole layers never miss
)


def workload_of(seed: int) -> Workload:
    trace = random_trace(seed)
    rng = np.random.default_rng(seed)
    sizes = {layer: int(rng.integers(1, 5)) * 1000 for layer in trace.layers}
    return prepare(trace, geometry_of(sizes, trace.n_experts))


def read_order(workload: Workload, replay: Replayed) -> list[tuple[int | None, tuple[int, int]]]:
    """Everything a replay reads: the call that missed it, None for what is read ahead; layer's place and expert."""
    trace = workload.trace
    ahead = replay.stream.ahead
    reads: list[tuple[int | None, tuple[int, int]]] = []
    for call in range(-1, trace.calls):
        if call >= 0:
            row = trace.layers.index(int(trace.layer[call]))
            of_call = slice(trace.offset[call], trace.offset[call + 1])
            missed = trace.expert[of_call][replay.hit[of_call] == 0].tolist()
            reads += [(call, (row, expert)) for expert in dict.fromkeys(missed)]
        for number in np.flatnonzero(ahead.after == call):
            reads.append((None, (int(ahead.row[number]), int(ahead.expert[number]))))
    return reads


def naive_warm(
    workload: Workload, replay: Replayed, capacity: int, *, loaded: bool = False
) -> tuple[list[int], list[int]]:
    held: OrderedDict[tuple[int, int], int] = OrderedDict()
    warm, ahead_warm = [0] * workload.trace.calls, []
    read = {row for _, (row, _) in read_order(workload, replay)}
    for row, expert in every_expert(workload) if loaded else []:
        if row not in read:
            continue
        held[row, expert] = workload.expert_bytes[row]
        while sum(held.values()) > capacity:
            held.popitem(last=False)
    for call, (row, expert) in read_order(workload, replay):
        there = (row, expert) in held
        if call is None:
            ahead_warm.append(int(there))
        else:
            warm[call] += there
        held.pop((row, expert), None)
        if workload.expert_bytes[row] <= capacity:
            held[row, expert] = workload.expert_bytes[row]
        while sum(held.values()) > capacity:
            held.popitem(last=False)
    return warm, ahead_warm


def every_expert(workload: Workload) -> list[tuple[int, int]]:
    """The place of its layer and the number of each expert, as the model's file has them."""
    return [(row, expert) for row, n in enumerate(workload.n_experts) for expert in range(n)]


@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize(("policy", "contract", "prefetch"), SPECS)
def test_equals_a_plain_lru(policy: str, contract: str, prefetch: str, loaded: bool) -> None:
    for seed in range(30):
        workload = workload_of(seed)
        most = max(
            len(set(workload.trace.expert[a:b]))
            for a, b in zip(workload.trace.offset[:-1], workload.trace.offset[1:], strict=True)
        )
        replay = run(workload, Bank(slots=int(most)), policy, contract, prefetch=prefetch, record=True)
        for capacity in (0, 999, 1000, 5000, 20_000, 10**9):
            found = warm_reads(workload, replay, capacity_bytes=capacity, loaded=loaded)
            expected = naive_warm(workload, replay, capacity, loaded=loaded)
            assert (found.warm.tolist(), found.ahead_warm.tolist()) == expected


def test_a_page_cache_that_holds_all_reads_each_expert_once() -> None:
    workload = workload_of(1)
    replay = run(workload, Bank(slots=1), "demand", "atomic", record=True)
    found = warm_reads(workload, replay, capacity_bytes=10**9)
    asked = {
        (layer, expert)
        for layer, expert in zip(
            np.repeat(workload.trace.layer, np.diff(workload.trace.offset)).tolist(),
            workload.trace.expert.tolist(),
            strict=True,
        )
    }
    assert replay.stream.misses.sum() - found.warm.sum() == len(asked)
    loaded = warm_reads(workload, replay, capacity_bytes=10**9, loaded=True)
    assert (loaded.warm == replay.stream.misses).all()


@pytest.mark.parametrize("from_end", ["low", "high"])
def test_layers_held_elsewhere_need_no_pages_at_the_start(from_end: str) -> None:
    for seed in range(30):
        workload = workload_of(seed)
        layer_bytes = [size * n for size, n in zip(workload.expert_bytes, workload.n_experts, strict=True)]
        elsewhere = max(layer_bytes)
        replay = run(workload, Bank(budget_bytes=elsewhere), f"placed:from_end={from_end}", "atomic", record=True)
        missing = {row for _, (row, _) in read_order(workload, replay)}
        pages = sum(layer_bytes[row] for row in missing)
        assert pages < sum(layer_bytes)
        found = warm_reads(workload, replay, capacity_bytes=pages, loaded=True)
        assert (found.warm == replay.stream.misses).all()
