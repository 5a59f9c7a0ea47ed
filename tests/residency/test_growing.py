"""A trace replayed while it grows counts what it counts whole, however its calls come."""

from __future__ import annotations

import re
from dataclasses import fields
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.errors import BadInput, Conflict, Malformed, OutOfRange, Unsupported
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.base import EvictingPolicy
from flashmoe_sim.policies.table import POLICIES, parse_policy
from flashmoe_sim.prefetchers.base import PastOnly
from flashmoe_sim.prefetchers.table import PREFETCHERS, parse_prefetcher
from flashmoe_sim.residency.capacity import capacities
from flashmoe_sim.residency.counts import Counts
from flashmoe_sim.residency.growing import LruCurve, advance, begin, chunk_workload, finish, fit_head, last_of
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.setup import Setup, why_not
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.trace.chunk import Last, LongTrace, cut_up
from flashmoe_sim.trace.routing import RoutingTrace
from tests.prefetchers.test_twins import random_trace
from tests.residency.builders import geometry_of, trace_of
from tests.residency.test_twins import PAIRS
from tests.support import refused

EVICTING = [name for name, policy in POLICIES.items() if issubclass(policy, EvictingPolicy) and not policy.hindsight]
PAST_ONLY = ["none", *(name for name, one in PREFETCHERS.items() if issubclass(one, PastOnly))]
VARIANTS = ["eam:stored=2", "eam:reach=1:width=3", "hot:width=2", "markov:width=3", "next-layer:width=1"]
CONTRACTS = ["runtime", "protected", "atomic", "sequential"]


def cuts_of(trace: RoutingTrace, rng: np.random.Generator) -> list[int]:
    """Cuts anywhere: the same call twice, before the first and after the last included."""
    return sorted(rng.integers(0, trace.calls + 1, int(rng.integers(0, 8))).tolist())


def grown(long: LongTrace, geometry: ModelGeometry | None = None) -> tuple[Workload, list[Workload]]:
    """The head of a trace, and its calls as they come."""
    head, last, found = fit_head(long.head, geometry), Last(), []
    for chunk in long.read():
        if chunk.calls:
            found.append(chunk_workload(head, chunk, last))
            last = last_of(found[-1])
    return head, found


def counted(long: LongTrace, setup: Setup, geometry: ModelGeometry | None = None) -> Counts:
    """The counts of a replay along a trace that grows."""
    head, chunks = grown(long, geometry)
    return finish(reduce(advance, chunks, begin(head, setup)))


def narrow(trace: RoutingTrace) -> RoutingTrace:
    """The trace with its top-k, without which predictors in chunks need a width."""
    width = np.diff(trace.offset) // np.maximum(trace.n_tokens, 1)
    return trace.with_(top_k=int(width.max()))


def assert_same(found: Counts, expected: Counts) -> None:
    for item in fields(Counts):
        mine, whole = getattr(found, item.name), getattr(expected, item.name)
        same = np.array_equal(mine, whole) if isinstance(whole, np.ndarray) else mine == whole
        assert same, item.name


@pytest.mark.parametrize("contract", CONTRACTS)
@pytest.mark.parametrize("policy", EVICTING)
def test_every_policy(policy: str, contract: str) -> None:
    if (contract, policy) not in PAIRS:
        return
    for seed in range(12):
        _compare(seed, policy, contract, "none")


@pytest.mark.parametrize("contract", CONTRACTS[:3])
@pytest.mark.parametrize("predictor", [*PAST_ONLY, *VARIANTS])
def test_every_predictor(predictor: str, contract: str) -> None:
    for seed in range(24):
        _compare(seed, "lru", contract, predictor)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    policy=st.sampled_from(["lru", "fifo", "lfu-decay", "arc", "random", "window", "demand"]),
    contract=st.sampled_from(CONTRACTS),
    predictor=st.sampled_from(PAST_ONLY),
)
def test_any_trace_and_any_cut(seed: int, policy: str, contract: str, predictor: str) -> None:
    _compare(seed, policy, contract, predictor)


def random_setup(
    trace: RoutingTrace, rng: np.random.Generator, policy: str, contract: str, predictor: str
) -> tuple[Setup, ModelGeometry] | None:
    """A setup with a random bank and a random model; None if no call has tokens, or they cannot be combined."""
    if not trace.refs:
        return None
    in_bytes, scope = bool(rng.integers(2)), ["layer", "global"][rng.integers(2)]
    geometry = geometry_of({layer: int(rng.integers(1, 4)) * 100 for layer in trace.layers}, dict(trace.n_experts))
    most = max(trace.n_experts.values())
    bank = Bank(slots=int(rng.integers(1, most + 1)))
    if in_bytes and contract in ("atomic", "sequential"):
        bank = Bank(budget_bytes=len(trace.layers) * int(rng.integers(300, 300 * most + 1)))
    chosen, prefetch = parse_policy(policy), parse_prefetcher(predictor)
    if why_not(chosen, contract, prefetch):
        return None
    return Setup(bank, chosen, contract, prefetch, scope), geometry


def _compare(seed: int, policy: str, contract: str, predictor: str) -> None:
    rng = np.random.default_rng(seed)
    trace = narrow(random_trace(seed))
    if (drawn := random_setup(trace, rng, policy, contract, predictor)) is None:
        return
    setup, geometry = drawn
    long = cut_up(trace, cuts_of(trace, rng))
    try:
        whole = replay(prepare(trace, geometry), setup)
    except BadInput:
        with pytest.raises(OutOfRange, match="slot-bank overflow") as error:
            counted(long, setup, geometry)
        call, asked = map(int, re.search(r"call (\d+) of .* for (\d+) distinct", str(error.value)).groups())
        assert asked == len(set(trace.expert[trace.offset[call] : trace.offset[call + 1]].tolist()))
        return
    assert_same(counted(long, setup, geometry), whole.counts)


def test_a_state_goes_on_twice() -> None:
    trace = narrow(random_trace(7))
    setup = Setup(Bank(slots=2), parse_policy("lfu-decay"), "atomic", parse_prefetcher("markov"))
    head, (first, second) = grown(cut_up(trace, [trace.calls // 2]))
    state = advance(begin(head, setup), first)
    once = finish(advance(state, second))
    assert_same(finish(advance(state, second)), once)
    assert_same(once, replay(prepare(trace), setup).counts)


def test_curves_of_lru() -> None:
    for seed in range(40):
        trace, rng = random_trace(seed), np.random.default_rng(seed)
        if not trace.refs:
            continue
        setups = [Setup(Bank(slots=slots)) for slots in range(1, max(trace.n_experts.values()) + 1)]
        head, chunks = grown(cut_up(trace, cuts_of(trace, rng)))
        curve = LruCurve(head)
        for calls in chunks:
            curve.add(calls)
        for setup, found in zip(setups, curve.counts(setups, [capacities(head, one) for one in setups]), strict=True):
            if found is None:
                with pytest.raises(OutOfRange, match="slot-bank overflow"):
                    replay(prepare(trace), setup)
            else:
                assert_same(found, replay(prepare(trace), setup).counts)


def test_what_needs_the_whole_trace_is_refused_in_one_line() -> None:
    head = fit_head(cut_up(random_trace(1), []).head)
    for policy, contract, predictor, why in (
        ("min", "atomic", "temporal", "policy min needs future requests"),
        ("lookahead-4", "atomic", "none", "needs future requests"),
        ("lru", "atomic", "oracle-1", "predictor oracle-1 needs future requests"),
        ("static", "atomic", "none", "counts requests in the trace before it is replayed"),
        ("hot-window", "atomic", "none", "plans over all steps"),
    ):
        setup = Setup(Bank(slots=2), parse_policy(policy), contract, parse_prefetcher(predictor))
        with refused(Unsupported, match=why):
            begin(head, setup)


def test_a_chunk_of_another_model_is_refused() -> None:
    trace = trace_of([(0, [1, 2], 1), (1, [0, 3], 1)], 4)
    head = fit_head(cut_up(trace, []).head)
    with pytest.raises(Conflict, match="layer 2 in the calls from 0"):
        chunk_workload(head, trace_of([(2, [1], 1)], 4), Last())
    with pytest.raises(Malformed, match="expert 9"):
        chunk_workload(head, trace_of([(1, [9], 1)], 16), Last())
