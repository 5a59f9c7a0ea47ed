"""Replay a workload against one setup: the public face of stage 1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim._jit import specialise
from flashmoe_sim.errors import SimError
from flashmoe_sim.policies import base
from flashmoe_sim.policies.base import (
    STAMPS,
    Candidates,
    EvictingPolicy,
    PinningPolicy,
    Policy,
    PoolShape,
    ScheduledPolicy,
)
from flashmoe_sim.policies.fifo import Fifo
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.policies.min_ import Min, MinForced
from flashmoe_sim.prefetchers.none import NoPrefetch
from flashmoe_sim.residency import atomic, deferred, flat, pinned, scheduled, sequential, tally
from flashmoe_sim.residency.ahead import NOT_READ, Ahead, compare
from flashmoe_sim.residency.capacity import Capacity, capacities
from flashmoe_sim.residency.counts import Counts
from flashmoe_sim.residency.pool import Pool
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.residency.stream import InstallStream, ReadAhead
from flashmoe_sim.residency.workload import Workload


@dataclass(frozen=True, eq=False)
class Replay:
    """The result of one replay.

    contents: for every pool the resident keys at the end, i32, ascending.
    hit: u8 [references], 1 where the expert was resident when it was looked up; where recorded.
    slot: i32 [references], the slot each reference was given; where recorded and the contract has fixed slots.
    stream: the install stream; where recorded.
    """

    setup: Setup
    counts: Counts
    contents: list[NDArray[np.int32]]
    hit: NDArray[np.uint8] | None = None
    slot: NDArray[np.int32] | None = None
    stream: InstallStream | None = None


def replay(workload: Workload, setup: Setup, *, record: bool = False) -> Replay:
    """Replay the workload's trace against the banks of `setup`.

    record: also give the slot of every reference and the install stream.
    Raises BadInput for a bank that does not fit the model or cannot hold the largest call.
    """
    trace = workload.trace
    pools = workload.pools(setup.scope)
    banks = capacities(workload, setup)
    table = np.zeros((len(trace.layers), tally.N_COLUMNS), np.int64)
    stream = np.zeros((trace.calls if record else 0, len(tally.STREAM)), np.int32)
    hit = np.zeros(trace.refs if record else 0, np.uint8)
    slot = np.full(trace.refs if record and setup.fixed_slots else 0, -1, np.int32)
    if isinstance(setup.policy, ScheduledPolicy):
        recorded = (stream, hit)
        return _replay_scheduled(workload, setup, setup.policy, banks, table, recorded, record=record)
    masks = _pinned_keys(workload, setup)
    ahead = workload.ahead(setup.prefetch, setup.scope)
    contents, reads = [], []
    for number, (pool, bank) in enumerate(zip(pools, banks, strict=True)):
        calls = np.zeros((len(pool.call) if record else 0, len(tally.STREAM)), np.int32)
        used = np.full(len(ahead[number].key) if record else 0, NOT_READ, np.int64)
        hits = np.zeros(len(pool.key) if record else 0, np.uint8)
        if masks is not None:
            repeats = setup.contract == "sequential"
            pinned.replay(pool.key, pool.offset, pool.row, masks[number], repeats, table, calls, hits)
            held = np.flatnonzero(masks[number]).astype(np.int32)
        elif setup.fixed_slots:
            out = np.full(len(pool.key) if record else 0, -1, np.int32)
            held = _replay_deferred(pool, setup, bank, ahead[number], table, (calls, used, out, hits))
            if record:
                slot[pool.reference] = out
        elif not record and _flat_serves(setup, bank):
            held = _replay_flat(pool, setup, bank, table)
        else:
            held = _replay_undeferred(pool, setup, bank, ahead[number], table, (calls, used, hits))
        contents.append(held)
        if masks is None:
            _check(setup, bank, held, table.sum(axis=0) if setup.scope == "global" else table[number])
        if record:
            stream[pool.call] = calls
            hit[pool.reference] = hits
            reads.append(_read_ahead(pool, ahead[number], used))
    return Replay(
        setup,
        build_counts(workload, setup, banks, table, None if masks is None else _by_layer(pools, masks, len(table))),
        contents,
        hit if record else None,
        slot if len(slot) else None,
        _install_stream(workload, stream, ReadAhead.of(reads)) if record else None,
    )


FLAT: dict[type[Policy], Callable[..., None]] = {
    Lru: flat.lru,
    Fifo: flat.fifo,
    Min: flat.min_bypass,
    MinForced: flat.min_forced,
}


def _flat_serves(setup: Setup, bank: Capacity) -> bool:
    in_slots = setup.bank.slots is not None and bank.room > 1
    return setup.contract == "sequential" and in_slots and type(setup.policy) in FLAT


def _replay_flat(pool: Pool, setup: Setup, bank: Capacity, table: NDArray[np.int64]) -> NDArray[np.int32]:
    resident = np.zeros(pool.keys, np.uint8)
    missed, declined = np.zeros((2, len(pool.call)), np.int32)
    FLAT[type(setup.policy)](pool.key, pool.offset, pool.next_reference, bank.room, resident, missed, declined)
    flat.add_calls(pool.row, pool.offset, missed, declined, bank.room, table)
    return np.flatnonzero(resident).astype(np.int32)


def _replay_scheduled(
    workload: Workload,
    setup: Setup,
    policy: ScheduledPolicy,
    banks: list[Capacity],
    table: NDArray[np.int64],
    recorded: tuple[NDArray[Any], ...],
    *,
    record: bool,
) -> Replay:
    candidates = _candidates(workload, setup)
    stream, hit = recorded
    resident, ahead = scheduled.replay(workload, policy, candidates, table, stream, hit)
    pools = workload.pools(setup.scope)
    masks = np.split(resident, np.cumsum([pool.keys for pool in pools])[:-1])
    slots = policy.slots_taken(candidates, _by_layer(pools, masks, len(table)))
    return Replay(
        setup,
        build_counts(workload, setup, banks, table, slots),
        [np.flatnonzero(mask).astype(np.int32) for mask in masks],
        hit if record else None,
        None,
        _install_stream(workload, stream, ahead) if record else None,
    )


OPTIONAL_HOOKS = ("on_call", "on_miss", "on_evict", "admits", "declines")


@cache
def _compiled(policy: Any, loop: str) -> Callable[..., Any]:
    name = f"{policy.__module__.rpartition('.')[2]}_{policy.__qualname__}"
    hooks = {hook: getattr(base, hook) for hook in OPTIONAL_HOOKS} | policy.kernels
    kernels = {key: specialise(kernel, f"{key}_{name}", inline=True) for key, kernel in hooks.items()}
    module = {"deferred": deferred, "atomic": atomic, "sequential": sequential}[loop]
    compiled: Callable[..., Any] = specialise(module.replay, f"replay_{name}", **kernels)
    return compiled


def _shape(pool: Pool, bank: Capacity, slots: int) -> PoolShape:
    capacity = max(min(bank.room // int(bank.size.min()), pool.keys), 1)
    return PoolShape(slots, capacity, pool.keys, pool.offset, pool.step)


def _check(setup: Setup, bank: Capacity, held: NDArray[np.int32], counted: NDArray[np.int64]) -> None:
    """Raise SimError where the books of one pool do not balance, which only the functions of a policy can bring about.

    counted: i64 [tally.N_COLUMNS].
    """
    weight = int(bank.size[held].sum())
    found: tuple[int, ...] = (weight, int(counted[tally.HITS] + counted[tally.MISSES]))
    expected: tuple[int, ...] = (min(weight, bank.room), int(counted[tally.REQUESTS]))
    if isinstance(setup.prefetch, NoPrefetch):  # what is evicted for a prediction is not an eviction of a call
        installs = int(counted[tally.MISSES] - counted[tally.BYPASSED])
        found += (int(counted[tally.EVICTIONS]),)
        expected += (installs - len(held),)
    if found != expected:
        raise SimError(
            f"policy {setup.policy.spec}: contents, requests and evictions of a bank of {bank.room} are {found}, "
            f"expected {expected}; choose_victim may only return a slot that holds something and is not blocked"
        )


def _replay_deferred(
    pool: Pool,
    setup: Setup,
    bank: Capacity,
    ahead: Ahead,
    table: NDArray[np.int64],
    recorded: tuple[NDArray[Any], ...],
) -> NDArray[np.int32]:
    assert isinstance(setup.policy, EvictingPolicy)
    policy: Any = type(setup.policy)
    slot_key = np.full(bank.room, -1, np.int32)
    fresh = np.zeros(bank.room, np.int64)
    overflow = _compiled(policy, "deferred")(
        pool.key,
        pool.offset,
        pool.row,
        pool.step,
        pool.call,
        pool.key_row,
        pool.next_call,
        ahead.arrays(),
        setup.contract == "protected",
        STAMPS.index(setup.policy.stamp),
        slot_key,
        np.full(pool.keys, -1, np.int32),
        fresh,
        setup.policy.allocate(_shape(pool, bank, bank.room)),
        table,
        *recorded,
    )
    assert overflow < 0, f"call {overflow} found no slot in a bank that holds every call"
    _count_ahead(pool, ahead, slot_key[fresh != 0], table)
    return np.sort(slot_key[slot_key >= 0])


def _replay_undeferred(
    pool: Pool,
    setup: Setup,
    bank: Capacity,
    ahead: Ahead,
    table: NDArray[np.int64],
    recorded: tuple[NDArray[Any], ...],
) -> NDArray[np.int32]:
    assert isinstance(setup.policy, EvictingPolicy)
    policy: Any = type(setup.policy)
    most = min(bank.room // int(bank.size.min()) + int(pool.requests.max()), pool.keys)
    slot_key = np.full(most, -1, np.int32)
    fresh = np.zeros(most, np.int64)
    atomically = setup.contract == "atomic"
    _compiled(policy, setup.contract)(
        pool.key,
        pool.offset,
        pool.row,
        pool.step,
        *((pool.call, pool.key_row, pool.next_call, ahead.arrays()) if atomically else (pool.next_reference,)),
        setup.policy.bypass,
        *([STAMPS.index(setup.policy.stamp)] if atomically else []),
        bank.room,
        bank.size,
        slot_key,
        np.full(pool.keys, -1, np.int32),
        *([fresh] if atomically else []),
        setup.policy.allocate(_shape(pool, bank, most)),
        table,
        *(recorded if atomically else (recorded[0], recorded[-1])),
    )
    _count_ahead(pool, ahead, slot_key[fresh != 0], table)
    return np.sort(slot_key[slot_key >= 0])


def _read_ahead(
    pool: Pool, ahead: Ahead, used: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]]:
    """What of the predictions was read: after, row, expert and used of a `ReadAhead`."""
    read = np.flatnonzero(used != NOT_READ)
    key = ahead.key[read].astype(np.int64)
    row = pool.key_row[key]
    return ahead.after[read], row, (key - np.searchsorted(pool.key_row, row)).astype(np.int32), used[read]


def _count_ahead(pool: Pool, ahead: Ahead, unused: NDArray[np.int32], table: NDArray[np.int64]) -> None:
    """Count what was read ahead and is still not used at the end, and how right the predictions were."""
    if len(ahead.row):
        np.add.at(table[:, tally.PREFETCH_WASTED], pool.key_row[unused], 1)
        compare(pool.key, pool.offset, pool.row, ahead.meant, ahead.offset, ahead.key, pool.keys, table)


def _pinned_keys(workload: Workload, setup: Setup) -> list[NDArray[np.bool_]] | None:
    """For every pool which keys are resident throughout, bool [keys]; None for a policy that evicts."""
    if not isinstance(setup.policy, PinningPolicy):
        return None
    masks = setup.policy.pinned(_candidates(workload, setup))
    return [np.concatenate(masks)] if setup.scope == "global" else masks


def _candidates(workload: Workload, setup: Setup) -> Candidates:
    profile = workload.profile(setup.policy)
    requests = [pool.requests_by_key for pool in profile.pools]
    first_seen = [pool.first_reference for pool in profile.pools]
    sizes = workload.expert_bytes or (1,) * len(requests)
    if setup.bank.slots is not None:
        slots = [min(setup.bank.slots, n) for n in workload.n_experts]
        budget = sum(n * size for n, size in zip(slots, sizes, strict=True))
    else:
        assert setup.bank.budget_bytes is not None
        budget = setup.bank.budget_bytes
        if isinstance(setup.policy, ScheduledPolicy):
            budget -= budget % setup.policy.budget_unit
        slots = [budget // len(sizes) // size for size in sizes]
    return Candidates(requests, first_seen, slots, sizes, budget)


def _by_layer(pools: list[Pool], masks: list[NDArray[np.bool_]], layers: int) -> NDArray[np.int64]:
    rows = np.concatenate([pool.key_row[mask] for pool, mask in zip(pools, masks, strict=True)])
    return np.bincount(rows, minlength=layers).astype(np.int64)


def build_counts(
    workload: Workload,
    setup: Setup,
    banks: list[Capacity],
    table: NDArray[np.int64],
    pinned_experts: NDArray[np.int64] | None = None,
) -> Counts:
    """Put a counted table, i64 [layers, tally.N_COLUMNS], together with what its rows mean.

    pinned_experts: i64 [layers], for a policy that does not evict: the memory is then theirs, not that of all slots.
    """
    sizes = workload.expert_bytes
    resident_bytes = None
    if sizes is not None and pinned_experts is not None:
        resident_bytes = int(np.array(sizes) @ pinned_experts)
    elif sizes is not None:
        resident_bytes = sum(bank.bytes for bank in banks if bank.bytes is not None)
    layers = workload.layer_geometry
    in_slots = setup.bank.slots is not None or setup.fixed_slots
    return Counts(
        layers=workload.trace.layers,
        table=table,
        unions=workload.unions,
        tokens=workload.trace.tokens,
        slots=max(bank.room for bank in banks) if in_slots else 0,
        expert_bytes=sizes,
        reads_per_install=None if layers is None else tuple(one.read_ops(io_split=setup.io_split) for one in layers),
        resident_bytes=resident_bytes,
    )


def _install_stream(workload: Workload, stream: NDArray[np.int32], ahead: ReadAhead) -> InstallStream:
    trace = workload.trace
    moment = np.maximum(ahead.after, 0)
    column = {name: stream[:, place] for place, name in enumerate(tally.STREAM)}
    size, ahead_bytes = None, None
    if workload.expert_bytes is not None:
        sizes = np.array(workload.expert_bytes, np.int64)
        size = sizes[np.searchsorted(trace.layers, trace.layer)]
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
        prefetch_issued=np.bincount(moment, minlength=trace.calls).astype(np.int32),
        bytes_read=None if size is None else column[tally.MISSES] * size,
        prefetch_bytes=ahead_bytes,
        ahead=ahead,
    )
