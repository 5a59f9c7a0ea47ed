"""The replay loop of the contract `sequential`: every reference is looked up and admitted on its own."""

from __future__ import annotations

from typing import Any

from flashmoe_sim._jit import read_only
from flashmoe_sim.policies.base import choose_victim, declines, on_call, on_evict, on_hit, on_install
from flashmoe_sim.residency.hook_records import admits, on_miss
from flashmoe_sim.residency.loops import FINE, NO_MARK, UNREAD, Served, add_call, fault_of
from flashmoe_sim.residency.pool_state import N_FREE, NOW, OPENED, USED


def replay(
    calls: Any, ahead: Any, rules: Any, held: Any, state: Any, scratch: Any, counts: Any, recording: Any
) -> tuple[int, int, int]:
    """Replay one pool; each reference is a request.

    Arguments and result are as for the atomic loop, except that nothing is predicted.
    """
    key, offset, row, step, upcoming, minor = (
        calls.key,
        calls.offset,
        calls.row,
        calls.step,
        calls.upcoming,
        calls.minor,
    )
    slot_key, key_slot, free, carry = held.slot_key, held.key_slot, held.free, held.carry
    bypass, capacity, size = rules.bypass, rules.room, rules.size
    blocked = scratch.blocked
    # None of these is negative; telling the compiler so avoids its check for negative indices.
    n_free, opened, earlier = max(carry[N_FREE], 0), max(carry[OPENED], 0), max(carry[NOW], 0)
    used = carry[USED]
    for call in range(len(offset) - 1):
        begin, end = offset[call], offset[call + 1]
        now = earlier + begin
        misses, cold, evictions, bypassed, lesser = 0, 0, 0, 0, 0
        on_call(state, step[call], row[call], calls.tokens[call])
        for r in range(begin, end):
            k = key[r]
            now += 1
            slot = key_slot[k]
            if len(recording.hit):
                recording.hit[r] = slot >= 0
            if slot >= 0:
                on_hit(state, slot, k, now, upcoming[r])
                continue
            misses += 1
            on_miss(state, k, now, upcoming[r])
            place = -1
            small = len(minor) > 0 and minor[r]
            lesser += small
            unread = small and not rules.reads_minor
            if unread and len(recording.hit):
                recording.hit[r] = UNREAD
            declined = unread or not admits(state, k, now, upcoming[r])
            while not declined and used + size[k] > capacity:
                victim = choose_victim(state, read_only(slot_key), read_only(blocked), NO_MARK)
                fault = fault_of(victim, slot_key, blocked, NO_MARK)
                if fault != FINE:
                    return call, fault, victim
                declined = bypass and place < 0 and declines(state, victim, k, now, upcoming[r])
                if declined:
                    break
                old = slot_key[victim]
                on_evict(state, victim, old)
                slot_key[victim] = -1
                key_slot[old] = -1
                used -= size[old]
                evictions += 1
                if place < 0:
                    place = victim
                else:
                    free[n_free] = victim
                    n_free += 1
            if declined:
                bypassed += 1
                continue
            if place < 0:
                cold += 1
                if n_free:
                    n_free -= 1
                    place = free[n_free]
                else:
                    place = opened
                    opened += 1
            slot_key[place] = k
            key_slot[k] = place
            used += size[k]
            on_install(state, place, k, now, upcoming[r])
        served = Served(end - begin, end - begin - misses, misses, cold, evictions, 0, bypassed, lesser)
        add_call(counts, recording.calls, row[call], call, end - begin, served)
    carry[NOW], carry[OPENED], carry[N_FREE], carry[USED] = earlier + offset[-1], opened, n_free, used
    return len(offset) - 1, FINE, -1
