"""Replay a workload against one setup: the public face of stage 1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.outside import blaming
from flashmoe_sim.policies.base import Candidates, PinningPolicy, ScheduledPolicy
from flashmoe_sim.residency import scheduled, tally
from flashmoe_sim.residency.ahead import NOT_READ, Ahead
from flashmoe_sim.residency.capacity import Capacity, capacities, layer_slots
from flashmoe_sim.residency.counts import Counts, bytes_read
from flashmoe_sim.residency.own_rules import check_pinned
from flashmoe_sim.residency.pool import Pool
from flashmoe_sim.residency.pool_replay import Recording, replay_pool
from flashmoe_sim.residency.pool_state import LOADED
from flashmoe_sim.residency.stream import InstallStream, ReadAhead
from flashmoe_sim.residency.workload import Setup, Workload


@dataclass(frozen=True, eq=False)
class Replayed:
    """The result of one replay.

    contents: for every pool the final resident keys, i32, ascending.
    hit: u8 [references], 1 if the expert was resident when it was looked up, UNREAD (of residency/loops.py) if it
        was not and, being minor, was not read; only if recorded.
    slot: i32 [references], the slot of each reference; only if recorded and the contract has fixed slots.
    stream: the install stream; only if recorded.
    in_ram: bool [references], whether RAM holds an expert that is not in the bank, by the rule of a system with more
        tiers; None without.
    """

    setup: Setup
    counts: Counts
    contents: list[NDArray[np.int32]]
    hit: NDArray[np.uint8] | None = None
    slot: NDArray[np.int32] | None = None
    stream: InstallStream | None = None
    in_ram: NDArray[np.bool_] | None = None


def replay(
    workload: Workload, setup: Setup, *, record: bool = False, progress: Callable[[int, int], None] | None = None
) -> Replayed:
    """Replay the workload's trace against the banks of `setup`.

    record: also return the slot of every reference and the install stream.
    progress: called with the number of banks done and their total after each bank, or once if all are counted together.
    Raises BadInput for a bank that does not fit the model or cannot hold the largest call.
    """
    trace = workload.trace
    banks = capacities(workload, setup)
    table = np.zeros((len(trace.layers), tally.N_COLUMNS), np.int64)
    stream = np.zeros((trace.calls if record else 0, len(tally.STREAM)), np.int32)
    hit = np.zeros(trace.refs if record else 0, np.uint8)
    slot = np.empty(trace.refs if record and setup.fixed_slots else 0, np.int32)
    in_one_walk: Replayed | None = None
    if isinstance(setup.policy, ScheduledPolicy):
        in_one_walk = _replay_scheduled(workload, setup, setup.policy, banks, table, (stream, hit), record=record)
    elif isinstance(setup.policy, PinningPolicy):
        in_one_walk = _replay_pinned(workload, setup, setup.policy, banks, table, (stream, hit), record=record)
    if in_one_walk is not None:
        if progress is not None:
            progress(len(banks), len(banks))
        return in_one_walk
    pools = workload.pools(setup.scope)
    ahead = workload.ahead(setup.prefetch, setup.scope)
    contents, reads, fixed_slots = [], [], setup.fixed_slots
    for number, (pool, bank) in enumerate(zip(pools, banks, strict=True)):
        recording = Recording.of(pool, ahead[number], wanted=record)
        state = replay_pool(workload, setup, number, bank, ahead[number], table, recording)
        contents.append(state.held)
        if record:
            stream[pool.call] = recording.calls
            hit[pool.reference] = recording.hit
            if fixed_slots:
                slot[pool.reference] = recording.slot
            if len(ahead[number].key):
                reads.append(_read_ahead(pool, bank, ahead[number], recording, int(state.bank.carry[LOADED])))
        if progress is not None:
            progress(number + 1, len(pools))
    return Replayed(
        setup,
        build_counts(workload, setup, banks, table),
        contents,
        hit if record else None,
        slot if len(slot) else None,
        _install_stream(workload, setup, stream, ReadAhead.of(reads)) if record else None,
    )


def _replay_pinned(
    workload: Workload,
    setup: Setup,
    policy: PinningPolicy,
    banks: list[Capacity],
    table: NDArray[np.int64],
    recorded: tuple[NDArray[Any], ...],
    *,
    record: bool,
) -> Replayed:
    """Nothing is read ahead: what is not pinned never comes into the bank."""
    trace, candidates = workload.trace, _candidates(workload, setup)
    with blaming("policy", policy):
        masks = policy.pinned(candidates)
    check_pinned(policy, masks, candidates)
    keys = np.array([len(mask) for mask in masks])
    resident, unseen = np.concatenate(masks), np.full(keys.sum(), -1, np.int64)
    repeats, (stream, hit) = setup.contract == "sequential", recorded
    routed = scheduled.RoutedCalls(trace.expert, trace.offset, trace.row, np.cumsum(keys) - keys)
    scheduled.count_pinned(routed, resident, unseen, repeats, table, stream, hit)
    return Replayed(
        setup,
        build_counts(workload, setup, banks, table, np.array([np.count_nonzero(mask) for mask in masks])),
        [np.flatnonzero(mask).astype(np.int32) for mask in ([resident] if setup.scope == "global" else masks)],
        hit if record else None,
        None,
        _install_stream(workload, setup, stream, ReadAhead.of([])) if record else None,
    )


def _replay_scheduled(
    workload: Workload,
    setup: Setup,
    policy: ScheduledPolicy,
    banks: list[Capacity],
    table: NDArray[np.int64],
    recorded: tuple[NDArray[Any], ...],
    *,
    record: bool,
) -> Replayed:
    candidates = _candidates(workload, setup)
    stream, hit = recorded
    pools = workload.pools(setup.scope)
    with blaming("policy", policy):
        resident, ahead = scheduled.replay(workload, policy, candidates, table, stream, hit)
        masks = np.split(resident, np.cumsum([pool.keys for pool in pools])[:-1])
        slots = policy.slots_taken(candidates, by_layer(pools, masks, len(table)))
    return Replayed(
        setup,
        build_counts(workload, setup, banks, table, slots),
        [np.flatnonzero(mask).astype(np.int32) for mask in masks],
        hit if record else None,
        None,
        _install_stream(workload, setup, stream, ahead) if record else None,
    )


def _read_ahead(pool: Pool, bank: Capacity, ahead: Ahead, recording: Recording, loaded: int) -> ReadAhead:
    """The predicted experts that were read. loaded: the weight of the experts in the bank before the first call."""
    read = np.flatnonzero(recording.used != NOT_READ)
    after, key = ahead.after[read], ahead.key[read].astype(np.int64)
    row = pool.key_row[key]
    first_key = np.searchsorted(pool.key_row, np.arange(pool.key_row[-1] + 1))
    missed = recording.calls[:, tally.STREAM.index(tally.COLD)] * bank.size[first_key[pool.row]]
    filled = np.concatenate([[0], np.cumsum(missed)])[np.searchsorted(pool.call, after, side="right")]
    filled += loaded + np.cumsum(bank.size[key])
    return ReadAhead(
        after,
        row,
        (key - first_key[row]).astype(np.int32),
        recording.used[read],
        (filled <= bank.room).astype(np.uint8),
    )


def _candidates(workload: Workload, setup: Setup) -> Candidates:
    profile = workload.profile(setup.policy)
    requests = [pool.requests_by_key for pool in profile.pools]
    first_seen = [pool.first_reference for pool in profile.pools]
    sizes = workload.expert_bytes or (1,) * len(requests)
    if setup.bank.in_slots:
        slots = layer_slots(workload, setup.bank)
        budget = sum(n * size for n, size in zip(slots, sizes, strict=True))
    else:
        assert setup.bank.budget_bytes is not None
        budget = setup.bank.budget_bytes
        if isinstance(setup.policy, ScheduledPolicy):
            budget -= budget % setup.policy.budget_unit
        slots = [budget // len(sizes) // size for size in sizes]
    return Candidates(requests, first_seen, slots, sizes, budget)


def by_layer(pools: list[Pool], masks: list[NDArray[np.bool_]], layers: int) -> NDArray[np.int64]:
    """How many keys of each layer are in the masks, which are bool [keys] per pool; i64 [layers]."""
    rows = np.concatenate([pool.key_row[mask] for pool, mask in zip(pools, masks, strict=True)])
    return np.bincount(rows, minlength=layers).astype(np.int64)


def build_counts(
    workload: Workload,
    setup: Setup,
    banks: list[Capacity],
    table: NDArray[np.int64],
    pinned_experts: NDArray[np.int64] | None = None,
    *,
    part: range | None = None,
) -> Counts:
    """Counts from a table, i64 [layers, tally.N_COLUMNS], and what its rows mean.

    pinned_experts: i64 [layers], for a policy that does not evict: its memory is that of these experts, not of all
    slots. part: the pools that were replayed, if others count the rest; `Counts.joined` joins them.
    """
    sizes = workload.expert_bytes
    part = range(len(banks)) if part is None else part
    resident_bytes = None
    if sizes is not None and pinned_experts is not None:
        resident_bytes = int(np.array(sizes) @ pinned_experts)
    elif sizes is not None:
        resident_bytes = sum(banks[number].bytes or 0 for number in part)
    layers = workload.layer_geometry
    in_slots = setup.bank.in_slots or setup.fixed_slots
    return Counts(
        layers=workload.trace.layers,
        table=table,
        unions=workload.unions(setup.scope, part),
        tokens=workload.trace.tokens,
        slots=max(banks[number].room for number in part) if in_slots else 0,
        expert_bytes=sizes,
        reads_per_install=None if layers is None else tuple(one.read_ops(io_split=setup.io_split) for one in layers),
        resident_bytes=resident_bytes,
        minor_share=setup.minor_share,
    )


def _install_stream(workload: Workload, setup: Setup, stream: NDArray[np.int32], ahead: ReadAhead) -> InstallStream:
    trace = workload.trace
    moment = np.maximum(ahead.after, 0)
    column = {name: stream[:, place] for place, name in enumerate(tally.STREAM)}
    read, ahead_bytes = None, None
    if workload.expert_bytes is not None:
        sizes = np.array(workload.expert_bytes, np.int64)
        size = sizes[trace.row]
        read = bytes_read(column[tally.MISSES], column[tally.MINOR], size, setup.minor_share)
        ahead_bytes = np.bincount(moment, sizes[ahead.row], trace.calls).astype(np.int64)
    return InstallStream(
        layer=trace.layer,
        step=trace.steps,
        n_tokens=trace.n_tokens,
        requests=column[tally.REQUESTS],
        hits=column[tally.HITS],
        misses=column[tally.MISSES],
        cold=column[tally.COLD],
        evictions=column[tally.EVICTIONS],
        aliased=column[tally.ALIASED],
        bypassed=column[tally.BYPASSED],
        minor=column[tally.MINOR],
        prefetch_issued=np.bincount(moment, minlength=trace.calls).astype(np.int32),
        bytes_read=read,
        prefetch_bytes=ahead_bytes,
        ahead=ahead,
    )
