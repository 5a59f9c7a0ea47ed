"""The replay loop of the contract `sequential`: every reference is looked up and admitted on its own."""

from __future__ import annotations

from typing import Any

import numpy as np

from flashmoe_sim.policies.base import choose_victim, on_hit, on_install
from flashmoe_sim.residency.tally import (
    BYPASSED,
    CALLS,
    COLD,
    EVICTIONS,
    FULL_HIT_CALLS,
    HITS,
    MISSES,
    REFS,
    REQUESTS,
)


def replay(
    key: Any,
    offset: Any,
    row: Any,
    upcoming: Any,
    bypass: bool,
    capacity: int,
    size: Any,
    slot_key: Any,
    key_slot: Any,
    state: Any,
    counts: Any,
    stream: Any,
) -> None:
    """Replay one pool; a request is a reference, and the arguments are as for the atomic loop.

    upcoming: i32 [references], the next *reference* that asks for the key.
    Of a key heavier than the whole bank nothing is kept.
    """
    blocked = np.zeros(len(slot_key), np.int64)
    free = np.arange(len(slot_key) - 1, -1, -1).astype(np.int32)
    n_free, used = len(free), 0
    for call in range(len(offset) - 1):
        begin, end = offset[call], offset[call + 1]
        misses, evictions, bypassed = 0, 0, 0
        cold = 0
        for r in range(begin, end):
            k = key[r]
            slot = key_slot[k]
            if slot >= 0:
                on_hit(state, slot, k, r + 1, upcoming[r])
                continue
            misses += 1
            displaced = 0
            if not bypass:
                while used + size[k] > capacity:
                    victim = choose_victim(state, slot_key, blocked, -1)
                    old = slot_key[victim]
                    slot_key[victim] = -1
                    key_slot[old] = -1
                    used -= size[old]
                    free[n_free] = victim
                    n_free += 1
                    displaced += 1
            n_free -= 1
            slot = free[n_free]
            slot_key[slot] = k
            key_slot[k] = slot
            used += size[k]
            on_install(state, slot, k, r + 1, upcoming[r])
            declined = 0
            while used > capacity:
                victim = choose_victim(state, slot_key, blocked, -1)
                old = slot_key[victim]
                slot_key[victim] = -1
                key_slot[old] = -1
                used -= size[old]
                free[n_free] = victim
                n_free += 1
                declined += victim == slot
                displaced += victim != slot
            evictions += displaced
            bypassed += declined
            cold += displaced == 0 and declined == 0
        into = counts[row[call]]
        into[CALLS] += 1
        into[REFS] += end - begin
        into[REQUESTS] += end - begin
        into[HITS] += end - begin - misses
        into[MISSES] += misses
        into[COLD] += cold
        into[EVICTIONS] += evictions
        into[FULL_HIT_CALLS] += misses == 0
        into[BYPASSED] += bypassed
        if len(stream):
            stream[call, 0] = end - begin
            stream[call, 1] = end - begin - misses
            stream[call, 2] = misses
            stream[call, 3] = cold
            stream[call, 4] = evictions
            stream[call, 6] = bypassed
