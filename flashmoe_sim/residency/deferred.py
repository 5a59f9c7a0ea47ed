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

from flashmoe_sim.policies.base import choose_victim, on_call, on_evict, on_hit, on_install, on_miss
from flashmoe_sim.residency import tally
from flashmoe_sim.residency.visit import FIRST, visit_order

PREFETCH_PLACE = tally.STREAM.index(tally.PREFETCH_ISSUED)


def replay(
    key: Any,
    offset: Any,
    row: Any,
    step: Any,
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
    step: i32 [calls + 1], the step of each call, and last the number of steps.
    upcoming: i32 [references], where the next call that asks for the key does so.
    prefetch_width: 0 none, -1 the whole union of the last call, else as many of its references from the first.
    slot_key: i32 [slots], key_slot: i32 [keys], fresh: bool [slots]: the bank, all -1 and False for an empty one.
    counts: i64 [rows, N_COLUMNS], added to.
    stream: i32 [calls, len(STREAM)]; out_slot: i32 [references]; out_hit: u8 [references]; all empty if not wanted.
    """
    blocked = np.zeros(len(slot_key), np.int64)
    evicted = np.zeros(len(slot_key), np.int32)
    seen = np.zeros(len(key_slot), np.int64)
    missed = np.zeros(len(key_slot), np.int64)
    sorted_seen = np.zeros(len(key_slot), np.int64)
    visit = np.zeros(len(key_slot), np.int64)
    epoch, now, opened = 0, 0, 0
    calls = len(offset) - 1
    for turn in range(calls + 1):
        prefetches = step[turn] - step[turn - 1] if prefetch_width != 0 and turn > 0 else 0
        # A turn is the prefetches owed since the pool's last call, each of which serves that call's references again
        # as far as it predicts them, and then the call itself; the last turn has no call.
        for serving in range(prefetches + (turn < calls)):
            prefetching = serving < prefetches
            call = turn - 1 if prefetching else turn
            begin, end = offset[call], offset[call + 1]
            if prefetching and prefetch_width > 0:
                end = min(end, begin + prefetch_width)
            epoch += 1
            if not prefetching:
                on_call(state, step[call])
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
                    if blocked[slot] == epoch and not protect:
                        # Aliased: the slot went to another expert of this call, and it is that one's use that counts.
                        aliased += 1
                        owner = slot_key[slot]
                        use = r
                        for q in range(begin, r):
                            if key[q] == owner:
                                use = q
                        on_hit(state, slot, owner, now, upcoming[use])
                    else:
                        blocked[slot] = epoch
                        on_hit(state, slot, k, now, upcoming[r])
                    continue
                on_miss(state, k, now)
                if opened < len(slot_key):
                    slot = opened
                    opened += 1
                else:
                    slot = choose_victim(state, slot_key, blocked, epoch)
                    if slot < 0:
                        return call
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
            if len(out_slot) and not prefetching:
                for r in range(begin, end):
                    out_slot[r] = key_slot[key[r]]
                    out_hit[r] = missed[key[r]] != epoch
            for i in range(evictions):
                key_slot[evicted[i]] = -1
            into = counts[row[call]]
            into[tally.PREFETCH_WASTED] += wasted
            misses = requests - hits
            if prefetching:
                into[tally.PREFETCH_CALLS] += 1
                into[tally.PREFETCH_REQUESTS] += requests
                into[tally.PREFETCH_ISSUED] += misses
                if len(stream):
                    stream[call, PREFETCH_PLACE] += misses
                continue
            into[tally.CALLS] += 1
            into[tally.REFS] += end - begin
            into[tally.REQUESTS] += requests
            into[tally.HITS] += hits
            into[tally.MISSES] += misses
            into[tally.COLD] += misses - evictions
            into[tally.EVICTIONS] += evictions
            into[tally.ALIASED] += aliased
            into[tally.FULL_HIT_CALLS] += misses == 0
            into[tally.PREFETCH_USEFUL] += useful
            if len(stream):
                stream[call, 0] = requests
                stream[call, 1] = hits
                stream[call, 2] = misses
                stream[call, 3] = misses - evictions
                stream[call, 4] = evictions
                stream[call, 5] = aliased
    return -1
