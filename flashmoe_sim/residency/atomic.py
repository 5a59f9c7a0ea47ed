"""The replay loop of the contract `atomic`: classify the whole call, serve it, and only then evict.

Source: arXiv 2608.07911, Definition 2 (event-atomic replay), with both of its retention rules. Under `forced` the
experts of the call are evicted last, hits as well as misses. If only the misses were kept, the furthest next use would
no longer be the best victim: with two slots, the calls 0 2, 1 2, 0 2, 1 0 would cost 5 misses instead of 4.
"""

from __future__ import annotations

from typing import Any

from flashmoe_sim._jit import read_only
from flashmoe_sim.policies.base import choose_victim, declines, on_call, on_evict, on_hit, on_install
from flashmoe_sim.residency import tally
from flashmoe_sim.residency.ahead import UNUSED
from flashmoe_sim.residency.hook_records import admits, on_miss
from flashmoe_sim.residency.loops import FINE, FIRST, NO_MARK, UNREAD, Served, add_call, fault_of, visit_order
from flashmoe_sim.residency.pool_state import N_FREE, NOW, OPENED, USED


def replay(
    calls: Any, ahead: Any, rules: Any, held: Any, state: Any, scratch: Any, counts: Any, recording: Any
) -> tuple[int, int, int]:
    """Replay one pool whose contents may weigh `rules.room` in total.

    Arguments and result are as for the deferred loop. The bank has as many slots as fit, and more for the largest call.
    Free slots are used last freed first, then in ascending order. A prediction makes room for each expert before it
    reads it, and stops if nothing is left to evict.
    """
    key, offset, row, step, number, key_row, upcoming, minor, tokens = calls
    slot_key, key_slot, fresh, free, carry = held
    bypass, stamp, capacity, size, out_used = rules.bypass, rules.stamp, rules.room, rules.size, recording.used
    blocked, _, seen, missed, sorted_seen, visit = scratch
    # None of these is negative; telling the compiler so avoids its check for negative indices.
    n_free, opened, now = max(carry[N_FREE], 0), max(carry[OPENED], 0), max(carry[NOW], 0)
    used = carry[USED]
    mark = 0
    ahead_turn, ahead_row, ahead_offset, ahead_after, ahead_key, ahead_upcoming, _ = ahead
    n_calls = len(offset) - 1
    for call in range(n_calls + 1):
        for serving in range(ahead_turn[call], ahead_turn[call + 1]):
            mark += 1
            requests, issued = 0, 0
            for r in range(ahead_offset[serving], ahead_offset[serving + 1]):
                slot = key_slot[ahead_key[r]]
                if slot >= 0:
                    blocked[slot] = mark
            for r in range(ahead_offset[serving], ahead_offset[serving + 1]):
                k = ahead_key[r]
                if seen[k] == mark:
                    continue
                seen[k] = mark
                requests += 1
                now += 1
                slot = key_slot[k]
                if slot >= 0:
                    on_hit(state, slot, k, now, ahead_upcoming[r])
                    continue
                on_miss(state, k, now, ahead_upcoming[r])
                slot = 0
                while used + size[k] > capacity:
                    slot = choose_victim(state, read_only(slot_key[:opened]), read_only(blocked), mark)
                    fault = fault_of(slot, slot_key[:opened], blocked, mark)
                    if fault != FINE:
                        return call, fault, slot
                    if slot < 0 or (bypass and declines(state, slot, k, now, ahead_upcoming[r])):
                        slot = -1
                        break
                    old = slot_key[slot]
                    counts[key_row[old], tally.PREFETCH_WASTED] += fresh[slot] != 0
                    fresh[slot] = 0
                    on_evict(state, slot, old)
                    slot_key[slot] = -1
                    key_slot[old] = -1
                    used -= size[old]
                    free[n_free] = slot
                    n_free += 1
                if slot < 0:
                    requests -= 1
                    break
                if n_free:
                    n_free -= 1
                    slot = free[n_free]
                else:
                    slot = opened
                    opened += 1
                issued += 1
                if len(out_used):
                    out_used[r] = UNUSED
                slot_key[slot] = k
                key_slot[k] = slot
                used += size[k]
                blocked[slot] = mark
                fresh[slot] = r + 1
                on_install(state, slot, k, now, ahead_upcoming[r])
            into = counts[ahead_row[serving]]
            into[tally.PREFETCH_CALLS] += 1
            into[tally.PREFETCH_REQUESTS] += requests
            into[tally.PREFETCH_ISSUED] += issued
        if call == n_calls:
            break
        mark += 1
        on_call(state, step[call], row[call], tokens[call])
        begin, end = offset[call], offset[call + 1]
        visits = end - begin
        if stamp != FIRST:
            visits = visit_order(stamp, key, begin, end, key_slot, sorted_seen, mark, visit)
        requests, hits, bypassed, lesser, useful, late = 0, 0, 0, 0, 0, 0
        for i in range(visits):
            r = visit[i] if stamp != FIRST else begin + i
            k = key[r]
            if seen[k] == mark:
                continue
            seen[k] = mark
            requests += 1
            now += 1
            slot = key_slot[k]
            if slot >= 0:
                hits += 1
                if fresh[slot]:
                    useful += 1
                    late += ahead_after[fresh[slot] - 1] == number[call] - 1
                    if len(out_used):
                        out_used[fresh[slot] - 1] = number[call]
                    fresh[slot] = 0
                blocked[slot] = 0 if bypass else mark
                on_hit(state, slot, k, now, upcoming[r])
                continue
            missed[k] = mark
            on_miss(state, k, now, upcoming[r])
            small = len(minor) > 0 and minor[r]
            lesser += small
            if (small and not rules.reads_minor) or not admits(state, k, now, upcoming[r]):
                bypassed += 1
                continue
            if n_free:
                n_free -= 1
                slot = free[n_free]
            else:
                slot = opened
                opened += 1
            slot_key[slot] = k
            key_slot[k] = slot
            used += size[k]
            blocked[slot] = 0 if bypass else mark
            on_install(state, slot, k, now, upcoming[r])
        if len(recording.hit):
            for r in range(begin, end):
                recording.hit[r] = missed[key[r]] != mark
                if not rules.reads_minor and minor[r] and missed[key[r]] == mark:
                    recording.hit[r] = UNREAD
        evictions = 0
        while used > capacity:
            slot = choose_victim(state, read_only(slot_key[:opened]), read_only(blocked), mark)
            fault = fault_of(slot, slot_key[:opened], blocked, mark)
            if slot < 0 and fault == FINE:
                slot = choose_victim(state, read_only(slot_key[:opened]), read_only(blocked), NO_MARK)
                fault = fault_of(slot, slot_key[:opened], blocked, NO_MARK)
            if fault != FINE:
                return call, fault, slot
            k = slot_key[slot]
            if missed[k] == mark:
                bypassed += 1
            else:
                evictions += 1
            counts[key_row[k], tally.PREFETCH_WASTED] += fresh[slot] != 0
            fresh[slot] = 0
            on_evict(state, slot, k)
            slot_key[slot] = -1
            key_slot[k] = -1
            used -= size[k]
            free[n_free] = slot
            n_free += 1
        misses = requests - hits
        cold = max(misses - bypassed - evictions, 0)
        served = Served(requests, hits, misses, cold, evictions, 0, bypassed, lesser)
        add_call(counts, recording.calls, row[call], call, end - begin, served)
        into = counts[row[call]]
        into[tally.PREFETCH_USEFUL] += useful
        into[tally.PREFETCH_LATE] += late
    carry[NOW], carry[OPENED], carry[N_FREE], carry[USED] = now, opened, n_free, used
    return n_calls, FINE, -1
