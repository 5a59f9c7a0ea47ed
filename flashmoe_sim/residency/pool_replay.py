"""Replay one pool against one bank of a policy that evicts: what a replay of one size and a walk of many share."""

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
from flashmoe_sim.policies.base import STAMPS, EvictingPolicy, Policy, PoolShape
from flashmoe_sim.policies.fifo import Fifo
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.policies.min_ import Min, MinForced
from flashmoe_sim.prefetchers.none import NoPrefetch
from flashmoe_sim.residency import atomic, deferred, flat, sequential, tally
from flashmoe_sim.residency.ahead import NOT_READ, Ahead, compare
from flashmoe_sim.residency.capacity import Capacity, slot_overflow
from flashmoe_sim.residency.pool import Pool
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.residency.workload import Workload


@dataclass(frozen=True, eq=False)
class Recording:
    """What a replay loop writes down of each call of a pool, beside the counts; all empty where not wanted.

    calls: i32 [calls, len(tally.STREAM)].
    used: i64 [predicted], the routed call of the first use of what was read ahead, UNUSED, or NOT_READ.
    slot: i32 [references], -1 before it is written. hit: u8 [references].
    """

    calls: NDArray[np.int32]
    used: NDArray[np.int64]
    slot: NDArray[np.int32]
    hit: NDArray[np.uint8]

    @classmethod
    def of(cls, pool: Pool, ahead: Ahead, *, wanted: bool = True) -> Recording:
        """A blank one for a pool."""
        calls, predicted, references = (wanted * len(part) for part in (pool.call, ahead.key, pool.key))
        return cls(
            np.zeros((calls, len(tally.STREAM)), np.int32),
            np.full(predicted, NOT_READ, np.int64),
            np.full(references, -1, np.int32),
            np.zeros(references, np.uint8),
        )


def replay_pool(
    workload: Workload,
    setup: Setup,
    number: int,
    bank: Capacity,
    ahead: Ahead,
    counts: NDArray[np.int64],
    recording: Recording,
) -> NDArray[np.int32]:
    """Replay a pool from an empty bank; the resident keys at the end, i32, ascending.

    number: the pool's, among those of the setup's scope. counts: i64 [layers, tally.N_COLUMNS], added to.
    Raises BadInput where a call finds no slot, and SimError where the policy's functions break the books.
    """
    pool = workload.pools(setup.scope)[number]
    table = np.zeros_like(counts)
    if setup.fixed_slots:
        held, overflow = _replay_deferred(pool, setup, bank, ahead, table, recording)
        if overflow >= 0:
            raise slot_overflow(workload, setup, number, overflow, bank)
    elif not len(recording.calls) and _flat_serves(setup, bank):
        held = _replay_flat(pool, setup, bank, table)
    else:
        held = _replay_undeferred(pool, setup, bank, ahead, table, recording)
    _check(setup, bank, held, table.sum(axis=0))
    counts += table
    return held


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
    recording: Recording,
) -> tuple[NDArray[np.int32], int]:
    """What is resident at the end, and the call that found no slot, or -1."""
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
        recording.calls,
        recording.used,
        recording.slot,
        recording.hit,
    )
    _count_ahead(pool, ahead, slot_key[fresh != 0], table)
    return np.sort(slot_key[slot_key >= 0]), overflow


def _replay_undeferred(
    pool: Pool,
    setup: Setup,
    bank: Capacity,
    ahead: Ahead,
    table: NDArray[np.int64],
    recording: Recording,
) -> NDArray[np.int32]:
    assert isinstance(setup.policy, EvictingPolicy)
    policy: Any = type(setup.policy)
    most = min(bank.room // int(bank.size.min()) + pool.largest_call, pool.keys)
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
        recording.calls,
        *([recording.used] if atomically else []),
        recording.hit,
    )
    _count_ahead(pool, ahead, slot_key[fresh != 0], table)
    return np.sort(slot_key[slot_key >= 0])


def _count_ahead(pool: Pool, ahead: Ahead, unused: NDArray[np.int32], table: NDArray[np.int64]) -> None:
    """Count what was read ahead and is still not used at the end, and how right the predictions were."""
    if len(ahead.row):
        np.add.at(table[:, tally.PREFETCH_WASTED], pool.key_row[unused], 1)
        compare(pool.key, pool.offset, pool.row, ahead.meant, ahead.offset, ahead.key, pool.keys, table)
