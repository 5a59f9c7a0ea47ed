"""Replays of a trace that is being written: a state and new calls go in, and the state after them comes out.

However the calls are divided, the counts are exactly those of the whole trace. The state has everything that a loop
keeps from call to call; only a predictor may keep more of a chunk. `LruCurve` counts every bank size of LRU at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.errors import Conflict, Incomplete, Unsupported
from flashmoe_sim.outside import blaming
from flashmoe_sim.policies.bank import Scope
from flashmoe_sim.policies.base import EvictingPolicy, PinningPolicy, ProfiledPolicy
from flashmoe_sim.prefetchers.base import Memory, PastOnly, step_ends
from flashmoe_sim.prefetchers.none import NoPrefetch
from flashmoe_sim.residency import one_pass, pinned, tally
from flashmoe_sim.residency.ahead import Ahead, by_pool, nothing_ahead
from flashmoe_sim.residency.capacity import Capacity, capacities
from flashmoe_sim.residency.counts import Counts, added
from flashmoe_sim.residency.curve import PoolCurve, first_ranks
from flashmoe_sim.residency.own_results import check_predictions
from flashmoe_sim.residency.pool import Pool
from flashmoe_sim.residency.pool_replay import Recording, begin_pool, check_books, check_uses, count_unused, go_on
from flashmoe_sim.residency.pool_state import BEFORE_ALL, NO_PAST, Past, PoolState
from flashmoe_sim.residency.replay import build_counts, by_layer, pinned_keys
from flashmoe_sim.residency.seen import why_not_seen
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.residency.workload import Workload, fit
from flashmoe_sim.trace.check import PER_CALL, PER_REFERENCE
from flashmoe_sim.trace.chunk import Chunk, Last, steps_after
from flashmoe_sim.trace.routing import RoutingTrace


@dataclass(frozen=True, eq=False)
class ReplayState:
    """A replay after some chunks of a trace. It is immutable.

    head: the trace's head, fitted to the model. banks, pools: the bank of each pool, and its contents.
    pinned: bool [keys] of each pool, for a policy that does not evict, which has no `pools`.
    memory: the predictor's state. pasts: the pending predictions of each pool.
    table: i64 [layers, tally.N_COLUMNS]. unions: as in `Counts`. tokens: i64 [layers].
    """

    setup: Setup
    head: Workload
    banks: list[Capacity]
    pools: list[PoolState]
    pinned: list[NDArray[np.bool_]] | None
    memory: Memory
    pasts: list[Past]
    table: NDArray[np.int64]
    unions: NDArray[np.int64]
    tokens: NDArray[np.int64]
    last: Last


def fit_head(head: Chunk, geometry: ModelGeometry | None = None) -> Workload:
    """A trace before its first call, with its model; raises what `prepare` raises."""
    if not head.layers:
        raise Incomplete(f"{head.name}: no routed calls in it; record or convert the trace again")
    return fit(head, geometry)


def why_not_while_written(setup: Setup) -> str | None:
    """Why a setup cannot be replayed along a trace that is being written; None if it can."""
    policy, prefetch = setup.policy, setup.prefetch
    later = "replay the trace when it is complete"
    if (profile := policy.reads_profile) is not None and (not profile or profile.startswith("first-")):
        return (
            f"policy {policy.spec} counts requests in the trace before it is replayed; "
            f"give it another trace as profile ({policy.name}:{policy.names_profile}=FILE), or {later}"
        )
    if isinstance(policy, PinningPolicy) and policy.by_routing and not isinstance(policy, ProfiledPolicy):
        return f"policy {policy.spec} pins by the requests of the whole trace; {later}"
    if not isinstance(policy, EvictingPolicy | PinningPolicy):
        return f"policy {policy.spec} plans over all steps of a trace at once; {later}"
    knows_all = isinstance(policy, EvictingPolicy) and policy.hindsight
    if knows_all or prefetch.hindsight:
        chosen = f"policy {policy.spec}" if knows_all else f"predictor {prefetch.spec}"
        return f"{chosen} needs future requests, which a trace being written does not have yet"
    if not isinstance(prefetch, NoPrefetch | PastOnly):
        return f"predictor {prefetch.spec} predicts for all of a trace at once; make it a PastOnly, or {later}"
    return None


def begin(head: Workload, setup: Setup) -> ReplayState:
    """The state before the first chunk.

    Raises BadInput for a bank that does not fit the model, and for a policy or predictor that needs the whole trace.
    """
    if reason := why_not_while_written(setup):
        raise Unsupported(reason)
    banks, pools = capacities(head, setup), head.pools(setup.scope)
    memory: Memory = ()
    if isinstance(setup.prefetch, PastOnly):
        with blaming("predictor", setup.prefetch):
            memory = setup.prefetch.begin(head.trace)
    states = []
    if isinstance(setup.policy, EvictingPolicy):
        # Any call may use every expert of its pool, unless the loop serves one reference at a time.
        states = [
            begin_pool(head, setup, number, bank, 1 if setup.contract == "sequential" else pool.keys)
            for number, (pool, bank) in enumerate(zip(pools, banks, strict=True))
        ]
    layers = len(head.trace.layers)
    return ReplayState(
        setup,
        head,
        banks,
        states,
        pinned_keys(head, setup),
        memory,
        [NO_PAST] * len(pools),
        np.zeros((layers, tally.N_COLUMNS), np.int64),
        np.zeros(0, np.int64),
        np.zeros(layers, np.int64),
        Last(),
    )


def chunk_workload(head: Workload, chunk: RoutingTrace, last: Last) -> Workload:
    """The next calls of a trace, with the layers, experts and model of the whole trace."""
    whole = head.trace
    if unknown := set(chunk.layers) - set(whole.layers):
        raise Conflict(
            f"{whole.name}: layer {min(unknown)} in the calls from {last.calls}, but not in the trace's head"
        )
    arrays = {name: getattr(chunk, name) for name in ("offset", *PER_CALL, *PER_REFERENCE)}
    part = whole.with_(**arrays | {"step": steps_after(chunk, last)})
    return replace(fit(part, head.geometry), first_call=last.calls)


def advance(state: ReplayState, calls: Workload) -> ReplayState:
    """The state after the next calls of the trace, which several states may share.

    Raises BadInput wherever `replay` raises it.
    """
    trace = calls.trace
    if not trace.calls:
        return state
    ends = np.zeros(trace.calls + 1, np.bool_)
    ends[:-1] = step_ends(trace.steps)[:-1]
    ends[0] = state.last.calls > 0 and int(trace.steps[0]) != state.last.step
    state = _serve(state, calls, ends)
    unions, tokens = totals_of(calls, state.setup.scope, state.unions, state.tokens)
    return replace(state, tokens=tokens, unions=unions, last=last_of(calls))


def finish(state: ReplayState) -> Counts:
    """The counts if the trace ends here."""
    setup = state.setup
    pools = state.head.pools(setup.scope)
    if isinstance(setup.prefetch, PastOnly) and state.last.calls:
        state = _serve(state, replace(state.head, first_call=state.last.calls), np.ones(1, np.bool_))
    table = state.table.copy()
    for pool, now in zip(pools, state.pools, strict=False):
        count_unused(pool, now, table)
    held = None if state.pinned is None else by_layer(pools, state.pinned, len(table))
    counts = build_counts(state.head, setup, state.banks, table, held)
    return replace(counts, unions=state.unions, tokens=int(state.tokens.max()))


def _serve(state: ReplayState, calls: Workload, ends: NDArray[np.bool_]) -> ReplayState:
    """The state after a chunk's calls are counted in its table; ends: bool [calls + 1], where a step ends."""
    setup, table = state.setup, state.table.copy()
    pools = calls.pools(setup.scope)
    if state.pinned is not None:
        repeats, nothing = setup.contract == "sequential", Recording.of(pools[0], nothing_ahead(pools[0]), wanted=False)
        for pool, mask in zip(pools, state.pinned, strict=True):
            unseen = np.full(pool.keys, -1, np.int64)
            pinned.replay(pool.key, pool.offset, pool.row, mask, unseen, repeats, table, nothing)
        return replace(state, table=table)
    if reason := why_not_seen(setup.policy, calls.trace):
        raise Incomplete(reason)
    if setup.policy.sees and not isinstance(setup.prefetch, NoPrefetch):
        raise Unsupported(
            f"policy {setup.policy.spec} sees the {setup.policy.sees[0]} of each reference, and of predictions that of "
            "calls before, which are gone; use --prefetch none, or replay the trace when it is complete"
        )
    states = [one.copied() for one in state.pools]
    memory, aheads = _ahead(state, states, calls, ends)
    pasts = []
    for number, (pool, bank, ahead, now) in enumerate(zip(pools, state.banks, aheads, states, strict=True)):
        nothing = Recording.of(pool, ahead, wanted=False)
        go_on(calls, setup, number, bank, ahead, now, table, nothing)
        check_uses(setup, now)
        unused = np.flatnonzero(now.fresh)
        now.fresh[unused] = ahead.after[now.fresh[unused] - 1] + calls.first_call - BEFORE_ALL
        pasts.append(_standing(ahead, calls.first_call))
        counted = table.sum(axis=0) if setup.scope == "global" else table[number]
        check_books(setup, bank, now, counted)
    return replace(state, pools=states, memory=memory, pasts=pasts, table=table)


def _ahead(
    state: ReplayState, states: list[PoolState], calls: Workload, ends: NDArray[np.bool_]
) -> tuple[Memory, list[Ahead]]:
    """The predictor's new state, and its predictions for each pool; `fresh` in `states` is made to refer to them."""
    predictor, pools = state.setup.prefetch, calls.pools(state.setup.scope)
    if not isinstance(predictor, PastOnly):
        return (), [nothing_ahead(pool) for pool in pools]
    with blaming("predictor", predictor):
        predictions, memory = predictor.follow(calls.trace, ends, deepcopy(state.memory))
        check_predictions(predictor, predictions, calls.trace)
    pasts = []
    for now, past in zip(states, state.pasts, strict=True):
        unused = np.flatnonzero(now.fresh)
        after = now.fresh[unused] + BEFORE_ALL
        now.fresh[unused] = np.arange(1, len(unused) + 1)
        pasts.append(
            Past(
                np.concatenate([after, past.after]) - calls.first_call,
                np.concatenate([np.zeros(len(unused), np.uint32), past.key]),
                past.row,
                len(unused) + past.offset,
            )
        )
    return memory, by_pool(predictions, pools, len(calls.trace.layers), pasts)


def _standing(ahead: Ahead, first_call: int) -> Past:
    """The predictions pending after a chunk, their `after` as call numbers of the whole trace."""
    number = ahead.latest[ahead.latest >= 0]
    if not len(number):
        return NO_PAST
    where = [np.arange(ahead.offset[one], ahead.offset[one + 1]) for one in number]
    at = np.concatenate(where)
    offset = np.cumsum([0, *map(len, where)], dtype=np.int64)
    return Past(ahead.after[at] + first_call, ahead.key[at], ahead.row[number], offset)


def last_of(calls: Workload) -> Last:
    """The last call of a chunk."""
    trace = calls.trace
    return Last(int(trace.layer[-1]), int(trace.steps[-1]), calls.first_call + trace.calls)


def totals_of(
    calls: Workload, scope: Scope, unions: NDArray[np.int64], tokens: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """How many calls request 0, 1, 2, … distinct experts, and the tokens of each layer, i64 [layers].

    unions, tokens: the same of all earlier chunks.
    """
    row = np.searchsorted(calls.trace.layers, calls.trace.layer)
    tokens = tokens + np.bincount(row, calls.trace.text, len(tokens)).astype(np.int64)
    return added(unions, calls.unions(scope, range(len(calls.pools(scope))))), tokens


class LruCurve:
    """LRU's lists of keys by last use, one per layer, and with them the counts of banks of any size.

    head: the trace's head, fitted to the model.
    """

    def __init__(self, head: Workload) -> None:
        self.head = head
        self.lists = [_LruList(pool) for pool in head.layer_pools]
        self._unions, self._tokens = np.zeros(0, np.int64), np.zeros(len(self.lists), np.int64)

    def add(self, calls: Workload) -> None:
        """Add the next calls."""
        for pool, one in zip(calls.layer_pools, self.lists, strict=True):
            if len(pool.call):
                one.add(pool)
        self._unions, self._tokens = totals_of(calls, "layer", self._unions, self._tokens)

    @property
    def tokens(self) -> int:
        """Tokens of all calls so far."""
        return int(self._tokens.max())

    def with_totals(self, counts: Counts) -> Counts:
        """The counts with the unions and tokens of all calls so far."""
        return replace(counts, unions=self._unions, tokens=self.tokens)

    def counts(self, setups: Sequence[Setup], banks: Sequence[list[Capacity]]) -> list[Counts | None]:
        """The counts of `replay` for LRU setups under `protected`, over the calls so far; banks: of each setup.

        None for a setup whose replay raises BadInput, since a call requests more experts than its bank holds.
        """
        rooms = np.array([[bank.room for bank in own] for own in banks])
        largest = np.array([one.largest for one in self.lists])
        curves = [one.curve() for one in self.lists]
        tables = np.stack([curve.counts(room) for curve, room in zip(curves, rooms.T, strict=True)], axis=1)
        return [
            self.with_totals(build_counts(self.head, setup, own, table)) if (room >= largest).all() else None
            for setup, own, room, table in zip(setups, banks, rooms, tables, strict=True)
        ]


class _LruList:
    """One layer's list of keys by last use, and the counts made with it."""

    def __init__(self, pool: Pool) -> None:
        self.rank = first_ranks(pool.keys)
        self.depths, self.deepest = np.zeros((2, pool.keys + 1), np.int64)
        self.calls = self.refs = self.distinct = self.largest = 0

    def add(self, pool: Pool) -> None:
        """Take the next calls of the layer."""
        self.distinct = one_pass.lru(pool.key, pool.offset, self.distinct, self.rank, self.depths, self.deepest)
        self.calls += len(pool.call)
        self.refs += pool.refs
        self.largest = max(self.largest, pool.largest_call)

    def curve(self) -> PoolCurve:
        """What a pass over all of the layer's calls gives."""
        return PoolCurve(self.calls, self.refs, self.depths, self.deepest, None, self.distinct, self.largest)
