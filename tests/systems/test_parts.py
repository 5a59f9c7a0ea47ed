"""A replay in parts against plain replays of the parts."""

from __future__ import annotations

import numpy as np
import pytest

from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.workload import Setup, prepare
from flashmoe_sim.systems.in_parts import STREAM_NAMES, only, replay_in_parts
from tests.residency.builders import geometry_of, random_calls, some, trace_of

COUNTED = ("calls", "refs", "requests", "hits", "misses", "cold", "evictions", "bypassed", "full_hit_calls")


@pytest.mark.parametrize("scope", ["layer", "global"])
@pytest.mark.parametrize("contract", ["atomic", "sequential"])
def test_one_part_of_all_calls_is_the_replay(contract: str, scope: str) -> None:
    calls = random_calls(np.random.default_rng(3), n_experts=10, layers=3, steps=30, most_tokens=2, width=2, idle=0.2)
    workload = prepare(trace_of(calls, 10), geometry_of({0: 7, 1: 8, 2: 9}, 10))
    setup = Setup(Bank(slots=4), Lru(), contract, scope=scope)
    plain, parts = replay(workload, setup, record=True), replay_in_parts(workload, setup, [np.arange(len(calls))])
    assert parts.counts.total() == plain.counts.total()
    assert np.array_equal(parts.counts.table, plain.counts.table)
    assert [one.tolist() for one in parts.contents] == [one.tolist() for one in plain.contents]
    assert parts.stream is not None
    assert plain.stream is not None
    for name in (*STREAM_NAMES, "layer", "step", "n_tokens", "prefetch_issued", "bytes_read", "prefetch_bytes"):
        assert np.array_equal(getattr(parts.stream, name), getattr(plain.stream, name)), name
    assert np.array_equal(parts.hit, plain.hit)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(6))
def test_parts_add_up_and_the_rest_misses_everything(seed: int) -> None:
    rng = np.random.default_rng(seed)
    calls = random_calls(rng, n_experts=10, layers=3, steps=30, most_tokens=2, width=2, missing=0.1, idle=0.1)
    trace = trace_of(calls, 10)
    setup = Setup(Bank(slots=4), Lru(), "atomic")
    of = rng.integers(0, 3, len(calls))  # the third part is left out
    numbers = [np.flatnonzero(of == part) for part in range(3)]
    parts = replay_in_parts(prepare(trace), setup, numbers[:2])
    plain = [replay(prepare(only(trace, part)), setup, record=True) for part in numbers]
    requests = some(plain[2], "requests")[0]
    expected = np.array([some(one, *COUNTED) for one in plain[:2]]).sum(axis=0)
    empty = sum(not experts for number, (_, experts, _) in enumerate(calls) if of[number] == 2)
    rest = (*some(plain[2], "calls", "refs"), requests, 0, requests, 0, 0, requests, empty)
    assert some(parts, *COUNTED) == tuple((expected + np.array(rest)).tolist())
    for part, one in zip(numbers, plain[:2], strict=False):
        assert np.array_equal(parts.stream.hits[part], one.stream.hits)
