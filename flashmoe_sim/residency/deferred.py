"""The replay loop of the contracts `runtime` and `protected`: a fixed number of slots, lookups updated after the call.

Source: the patched llama.cpp runtime (Flash-MoE fork), slot resolution and install. `protected` differs from it only in
that residents requested anywhere in the call are reserved before a victim is chosen.

The runtime queues installs and stamps ages after the call. Here the slot is reassigned and the policy notified at once:
a slot touched by the call is reserved until its end, so no choice can see the difference. Only the evicted expert is
not forgotten until the end of the call: until then it still counts as resident (aliasing).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flashmoe_sim._jit import read_only
from flashmoe_sim.policies.base import choose_victim, on_call, on_evict, on_hit, on_install
from flashmoe_sim.residency import tally
from flashmoe_sim.residency.ahead import UNUSED
from flashmoe_sim.residency.hook_records import on_miss
from flashmoe_sim.residency.loops import FINE, FIRST, NO_SLOT, UNREAD, Served, add_call, fault_of, visit_order
from flashmoe_sim.residency.pool_state import NOW, OPENED


def replay(
    calls: Any, ahead: Any, rules: Any, held: Any, state: Any, scratch: Any, counts: Any, recording: Any
) -> tuple[int, int, int]:
    """Replay one pool; return the call it ended at, the reason (a constant of residency/loops.py), and the slot
    chosen.

    calls: the pool's `Calls`. ahead: its `Predicted`. A prediction is served like a call, except that it is counted
        differently and stops if no slot is left.
    held, state: the bank and the policy's arrays, updated; `held.carry` keeps its values if the loop ends early.
    scratch: a `Scratch`.
    counts: i64 [rows, N_COLUMNS], added to. recording: a `Recording`, of which `used` is unchanged for an expert that
        was not read.
    """
    key, offset, row, step, number, key_row, upcoming, minor, tokens = calls
    slot_key, key_slot, fresh, carry = held.slot_key, held.key_slot, held.fresh, held.carry
    protect, stamp, out_used = rules.protect, rules.stamp, recording.used
    blocked, evicted, seen, missed, sorted_seen, visit = scratch
    # None of these is negative; telling the compiler so avoids its check for negative indices.
    epoch, now, opened = 0, max(carry[NOW], 0), max(carry[OPENED], 0)
    n_calls = len(offset) - 1
    ahead_turn, ahead_row, ahead_offset, ahead_after, ahead_key, ahead_upcoming, _ = ahead
    for call in range(n_calls + 1):
        # The predictions made since the pool's last call, then the call itself; after the last call only predictions.
        for serving in range(ahead_turn[call], ahead_turn[call + 1] + (call < n_calls)):
            prefetching = serving < ahead_turn[call + 1]
            requested, coming = (ahead_key, ahead_upcoming) if prefetching else (key, upcoming)
            if prefetching:
                begin, end = ahead_offset[serving], ahead_offset[serving + 1]
            else:
                begin, end = offset[call], offset[call + 1]
            epoch += 1
            if not prefetching:
                on_call(state, step[call], row[call], tokens[call])
            if protect:
                for r in range(begin, end):
                    slot = key_slot[requested[r]]
                    if slot >= 0:
                        blocked[slot] = epoch
            visits = end - begin
            if stamp != FIRST:
                visits = visit_order(stamp, requested, begin, end, key_slot, sorted_seen, epoch, visit)
            requests, hits, aliased, useful, late = 0, 0, 0, 0, 0
            evictions, bypassed, lesser = 0, 0, 0
            for i in range(visits):
                r = visit[i] if stamp != FIRST else begin + i
                k = requested[r]
                if seen[k] == epoch:
                    continue
                seen[k] = epoch
                requests += 1
                now += 1
                slot = key_slot[k]
                if slot >= 0:
                    hits += 1
                    if fresh[slot] and not prefetching:
                        late += ahead_after[fresh[slot] - 1] == number[call] - 1
                        if len(out_used):
                            out_used[fresh[slot] - 1] = number[call]
                        fresh[slot] = 0
                        useful += 1
                    if blocked[slot] == epoch and not protect:
                        # Aliased: the slot went to another expert of this call, and that expert's use counts.
                        aliased += 1
                        owner: Any = np.uint32(slot_key[slot])  # the type of the other keys: one compiled copy
                        use = r
                        for q in range(begin, r):
                            if requested[q] == owner:
                                use = q
                        on_hit(state, slot, owner, now, coming[use])
                    else:
                        blocked[slot] = epoch
                        on_hit(state, slot, k, now, coming[r])
                    continue
                on_miss(state, k, now, coming[r])
                if not prefetching and len(minor) and minor[r]:
                    lesser += 1
                    if not rules.reads_minor:
                        bypassed += 1
                        missed[k] = epoch
                        continue
                if opened < len(slot_key):
                    slot = opened
                    opened += 1
                else:
                    slot = choose_victim(state, read_only(slot_key), read_only(blocked), epoch)
                    fault = fault_of(slot, slot_key, blocked, epoch)
                    if fault != FINE:
                        return call, fault, slot
                    if slot < 0:
                        if prefetching:
                            requests -= 1
                            break
                        return call, NO_SLOT, slot
                    old = slot_key[slot]
                    on_evict(state, slot, old)
                    evicted[evictions] = old
                    evictions += 1
                    counts[key_row[old], tally.PREFETCH_WASTED] += fresh[slot] != 0
                blocked[slot] = epoch
                slot_key[slot] = k
                key_slot[k] = slot
                fresh[slot] = r + 1 if prefetching else 0
                if prefetching and len(out_used):
                    out_used[r] = UNUSED
                missed[k] = epoch
                on_install(state, slot, k, now, coming[r])
            if len(recording.slot) and not prefetching:
                for r in range(begin, end):
                    recording.slot[r] = key_slot[key[r]]
                    recording.hit[r] = missed[key[r]] != epoch
                    if not rules.reads_minor and minor[r] and missed[key[r]] == epoch:
                        recording.hit[r] = UNREAD
            for i in range(evictions):
                key_slot[evicted[i]] = -1
            misses = requests - hits
            if prefetching:
                into = counts[ahead_row[serving]]
                into[tally.PREFETCH_CALLS] += 1
                into[tally.PREFETCH_REQUESTS] += requests
                into[tally.PREFETCH_ISSUED] += misses
                continue
            cold = misses - bypassed - evictions
            served = Served(requests, hits, misses, cold, evictions, aliased, bypassed, lesser)
            add_call(counts, recording.calls, row[call], call, end - begin, served)
            into = counts[row[call]]
            into[tally.PREFETCH_USEFUL] += useful
            into[tally.PREFETCH_LATE] += late
    carry[NOW], carry[OPENED] = now, opened
    return n_calls, FINE, -1
