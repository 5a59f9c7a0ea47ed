"""The replay loop of the contracts `runtime` and `protected`: a fixed number of slots, lookups updated after the call.

Source: the patched llama.cpp runtime (Flash-MoE fork), slot resolution and install. `protected` differs from it only in
that residents requested anywhere in the call are reserved before a victim is chosen.

The runtime queues installs and stamps ages after the call. Here the slot changes hands and the policy is told at once:
a slot touched by the call is reserved until its end, so no choice can see the difference. What must wait is that the
evicted expert is forgotten: until the end of the call it still counts as resident (aliasing).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flashmoe_sim.policies.base import choose_victim, on_evict, on_hit, on_install
from flashmoe_sim.residency.tally import (
    ALIASED,
    CALLS,
    COLD,
    EVICTIONS,
    FULL_HIT_CALLS,
    HITS,
    MISSES,
    N_COLUMNS,
    PREFETCH_CALLS,
    PREFETCH_ISSUED,
    PREFETCH_REQUESTS,
    PREFETCH_USEFUL,
    PREFETCH_WASTED,
    REFS,
    REQUESTS,
    STREAM,
)
from flashmoe_sim.residency.visit import FIRST, visit_order


def serve(
    key: Any,
    begin: int,
    end: int,
    upcoming: Any,
    protect: bool,
    prefetching: bool,
    stamp: int,
    clock: Any,
    slot_key: Any,
    key_slot: Any,
    blocked: Any,
    seen: Any,
    sorted_seen: Any,
    fresh: Any,
    evicted: Any,
    missed: Any,
    visit: Any,
    state: Any,
    out_slot: Any,
    out_hit: Any,
    tally: Any,
) -> bool:
    """Resolve and install the references key[begin:end] as one call; False when a miss finds no slot.

    clock: i64 [3]: the epoch of reservations, the counter of uses, the number of slots used so far.
    seen, missed: i64 [keys], the epoch in which a key was last seen, and last missed. evicted: i32 [slots], scratch.
    tally: i64 [N_COLUMNS], what this call did; set, not added to.
    """
    epoch = clock[0] + 1
    clock[0] = epoch
    now, opened = clock[1], clock[2]
    if protect:
        for r in range(begin, end):
            slot = key_slot[key[r]]
            if slot >= 0:
                blocked[slot] = epoch
    visits = end - begin
    if stamp != FIRST:
        visits = visit_order(stamp, key, begin, end, key_slot, sorted_seen, epoch, visit)
    requests, hits, aliased, useful, evictions, wasted = 0, 0, 0, 0, 0, 0
    for i in range(visits):
        r = visit[i] if stamp != FIRST else begin + i
        k = key[r]
        if seen[k] == epoch:
            continue
        seen[k] = epoch
        requests += 1
        now += 1
        slot = key_slot[k]
        if slot >= 0:
            hits += 1
            if fresh[slot] and not prefetching:
                fresh[slot] = False
                useful += 1
            use = upcoming[r]
            if not protect and blocked[slot] == epoch:
                aliased += 1
                owner = slot_key[slot]
                for q in range(begin, r):
                    if key[q] == owner:
                        use = upcoming[q]
                on_hit(state, slot, owner, now, use)
            else:
                blocked[slot] = epoch
                on_hit(state, slot, k, now, use)
            continue
        if opened < len(slot_key):
            slot = opened
            opened += 1
        else:
            slot = choose_victim(state, slot_key, blocked, epoch)
            if slot < 0:
                return False
            old = slot_key[slot]
            on_evict(state, slot, old)
            evicted[evictions] = old
            evictions += 1
            wasted += fresh[slot]
        blocked[slot] = epoch
        slot_key[slot] = k
        key_slot[k] = slot
        fresh[slot] = prefetching
        missed[k] = epoch
        on_install(state, slot, k, now, upcoming[r])
    if len(out_slot):
        for r in range(begin, end):
            out_slot[r] = key_slot[key[r]]
            out_hit[r] = missed[key[r]] != epoch
    for i in range(evictions):
        key_slot[evicted[i]] = -1
    clock[1], clock[2] = now, opened
    tally[REQUESTS] = requests
    tally[HITS] = hits
    tally[MISSES] = requests - hits
    tally[COLD] = requests - hits - evictions
    tally[EVICTIONS] = evictions
    tally[ALIASED] = aliased
    tally[PREFETCH_USEFUL] = useful
    tally[PREFETCH_WASTED] = wasted
    return True


def replay(
    key: Any,
    offset: Any,
    row: Any,
    steps_before: Any,
    upcoming: Any,
    protect: bool,
    stamp: int,
    prefetch_width: int,
    slot_key: Any,
    key_slot: Any,
    fresh: Any,
    state: Any,
    counts: Any,
    stream: Any,
    out_slot: Any,
    out_hit: Any,
) -> int:
    """Replay one pool; the number of the call that found no slot, or -1.

    key: u32 [references], offset: i64 [calls + 1], row: i32 [calls], the row of `counts` a call is added to.
    steps_before: i32 [calls + 1], steps that ended since the pool's previous call (after the last: since it).
    upcoming: i32 [references], where the next call that asks for the key does so.
    prefetch_width: 0 none, -1 the whole union of the last call, else as many of its references from the first.
    slot_key: i32 [slots], key_slot: i32 [keys], fresh: bool [slots]: the bank, all -1 and False for an empty one.
    counts: i64 [rows, N_COLUMNS], added to.
    stream: i32 [calls, len(STREAM)]; out_slot: i32 [references]; out_hit: u8 [references]; all empty if not wanted.
    """
    clock = np.zeros(3, np.int64)
    blocked = np.zeros(len(slot_key), np.int64)
    evicted = np.zeros(len(slot_key), np.int32)
    seen = np.zeros(len(key_slot), np.int64)
    sorted_seen = np.zeros(len(key_slot), np.int64)
    missed = np.zeros(len(key_slot), np.int64)
    visit = np.zeros(len(key_slot), np.int64)
    tally = np.zeros(N_COLUMNS, np.int64)
    unrecorded = out_slot[:0]
    calls = len(offset) - 1
    for call in range(calls + 1):
        if prefetch_width != 0 and call > 0:
            begin = offset[call - 1]
            end = offset[call] if prefetch_width < 0 else min(begin + prefetch_width, offset[call])
            into = counts[row[call - 1]]
            issued = 0
            for _ in range(steps_before[call]):
                if not serve(
                    key, begin, end, upcoming, protect, True, stamp, clock, slot_key, key_slot, blocked, seen,
                    sorted_seen, fresh, evicted, missed, visit, state, unrecorded, out_hit, tally,
                ):  # fmt: skip
                    return call - 1
                into[PREFETCH_CALLS] += 1
                into[PREFETCH_REQUESTS] += tally[REQUESTS]
                into[PREFETCH_WASTED] += tally[PREFETCH_WASTED]
                issued += tally[MISSES]
            into[PREFETCH_ISSUED] += issued
            if len(stream):
                stream[call - 1, len(STREAM) - 1] = issued
        if call == calls:
            break
        if not serve(
            key, offset[call], offset[call + 1], upcoming, protect, False, stamp, clock, slot_key, key_slot, blocked,
            seen, sorted_seen, fresh, evicted, missed, visit, state, out_slot, out_hit, tally,
        ):  # fmt: skip
            return call
        into = counts[row[call]]
        into[CALLS] += 1
        into[REFS] += offset[call + 1] - offset[call]
        into[FULL_HIT_CALLS] += tally[MISSES] == 0
        for column in (REQUESTS, HITS, MISSES, COLD, EVICTIONS, ALIASED, PREFETCH_USEFUL, PREFETCH_WASTED):
            into[column] += tally[column]
        if len(stream):
            for place in range(len(STREAM) - 1):
                stream[call, place] = tally[STREAM[place]]
    return -1
