"""The contract `sequential` for a bank of slots: only counts and final contents.

For three policies, these loops do what the general loop of `sequential` does, but without slots. They exist for speed:
the general loop follows keys to slots to queues, these keep everything by key. References are counted in unsigned
integers, so that numba compiles no test for a negative index into each access.

key: u32 [references]; offset: i64 [calls + 1]; upcoming: i32 [references], the next reference to the key, or NEVER.
resident: u8 [keys], all 0 at first; 1 for the final contents.
missed: i32 [calls], set to the misses of each call. declined: i32 [calls], set to the misses not admitted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flashmoe_sim._jit import jit
from flashmoe_sim.policies.base import NEVER
from flashmoe_sim.residency import tally

VECTOR = 32


@jit
def add_calls(row: Any, offset: Any, missed: Any, declined: Any, capacity: int, table: Any) -> None:
    """Add the result of one of the loops below to the counts, i64 [rows, N_COLUMNS]."""
    installs, begin = 0, 0
    misses, bypassed, whole, cold = 0, 0, 0, 0
    for call in range(len(missed)):
        misses += missed[call]
        bypassed += declined[call]
        whole += missed[call] == 0
        if installs < capacity:
            cold += min(missed[call], capacity - installs)
            installs += missed[call]
        if call + 1 < len(missed) and row[call + 1] == row[call]:
            continue
        references = offset[call + 1] - offset[begin]
        into = table[row[call]]
        into[tally.CALLS] += call + 1 - begin
        into[tally.REFS] += references
        into[tally.REQUESTS] += references
        into[tally.HITS] += references - misses
        into[tally.MISSES] += misses
        into[tally.COLD] += cold
        into[tally.BYPASSED] += bypassed
        into[tally.EVICTIONS] += misses - bypassed - cold
        into[tally.FULL_HIT_CALLS] += whole
        begin = call + 1
        misses, bypassed, whole, cold = 0, 0, 0, 0


@jit
def lru(key: Any, offset: Any, upcoming: Any, capacity: int, resident: Any, missed: Any, declined: Any) -> None:
    """LRU with at least two slots, as a list of keys by last use."""
    end = len(resident)
    older = np.full(end + 1, end, np.uint32)
    newer = np.full(end + 1, end, np.uint32)
    newest = np.uint32(end)
    held = 0
    for call in range(len(missed)):
        misses = 0
        for r in range(np.uint64(offset[call]), np.uint64(offset[call + 1])):
            k = key[r]
            if k == newest:
                continue
            if resident[k]:
                before, after = older[k], newer[k]
                newer[before] = after
                older[after] = before
            else:
                misses += 1
                resident[k] = 1
                if held < capacity:
                    held += 1
                else:
                    victim = newer[end]
                    after = newer[victim]
                    newer[end] = after
                    older[after] = end
                    resident[victim] = 0
            older[k] = newest
            newer[newest] = k
            newest = k
        missed[call] = misses


@jit
def fifo(key: Any, offset: Any, upcoming: Any, capacity: int, resident: Any, missed: Any, declined: Any) -> None:
    """FIFO: the contents are the last `capacity` installs."""
    installed = np.full(len(resident), -capacity, np.int64)
    installs = 0
    for call in range(len(missed)):
        before = installs
        for r in range(np.uint64(offset[call]), np.uint64(offset[call + 1])):
            k = key[r]
            if installed[k] <= installs - capacity:
                installs += 1
                installed[k] = installs
        missed[call] = installs - before
    for k in range(len(resident)):
        resident[k] = installed[k] > max(installs - capacity, 0)


@jit
def furthest_of(next_use: Any) -> int:
    """The place with the largest next use, i32 [whole vectors]; -1 if empty, all other values are unique."""
    furthest = np.int32(-1)
    for place in range(len(next_use)):
        use = next_use[place]
        furthest = use if use > furthest else furthest
    found = np.int32(0)
    for place in range(len(next_use)):
        found |= np.int32(place) & -np.int32(next_use[place] == furthest)
    return int(found)


@jit
def min_bypass(key: Any, offset: Any, upcoming: Any, capacity: int, resident: Any, missed: Any, declined: Any) -> None:
    """Belady's min, which declines an expert whose next use is later than the next uses of all residents."""
    next_use = np.full(-(-capacity // VECTOR) * VECTOR, -1, np.int32)
    place_key = np.zeros(capacity, np.uint32)
    key_place = np.full(len(resident), -1, np.int32)
    held = 0
    furthest, furthest_use = -1, 0  # the place with the furthest next use, if known, and that use
    for call in range(len(missed)):
        misses, bypassed = 0, 0
        for r in range(np.uint64(offset[call]), np.uint64(offset[call + 1])):
            k = key[r]
            use = upcoming[r] if upcoming[r] != NEVER else NEVER - (r + 1)
            place = key_place[k]
            if place >= 0:
                next_use[place] = use
                if furthest >= 0 and (use > furthest_use or place == furthest):
                    furthest = place if use > furthest_use else -1
                    furthest_use = use
                continue
            misses += 1
            if held < capacity:
                place = held
                held += 1
            else:
                if furthest < 0:
                    furthest = furthest_of(next_use)
                    furthest_use = next_use[furthest]
                if use > furthest_use:
                    bypassed += 1
                    continue
                place = furthest
                furthest = -1
                key_place[place_key[place]] = -1
            place_key[place] = k
            key_place[k] = place
            next_use[place] = use
        missed[call] = misses
        declined[call] = bypassed
    for k in range(len(resident)):
        resident[k] = key_place[k] >= 0


@jit
def min_forced(key: Any, offset: Any, upcoming: Any, capacity: int, resident: Any, missed: Any, declined: Any) -> None:
    """Belady's min, which admits every miss."""
    next_use = np.full(-(-capacity // VECTOR) * VECTOR, -1, np.int32)
    place_key = np.zeros(capacity, np.uint32)
    key_place = np.full(len(resident), -1, np.int32)
    held = 0
    for call in range(len(missed)):
        misses = 0
        for r in range(np.uint64(offset[call]), np.uint64(offset[call + 1])):
            k = key[r]
            place = key_place[k]
            if place < 0:
                misses += 1
                if held < capacity:
                    place = held
                    held += 1
                else:
                    place = furthest_of(next_use)
                    key_place[place_key[place]] = -1
                place_key[place] = k
                key_place[k] = place
            next_use[place] = upcoming[r] if upcoming[r] != NEVER else NEVER - (r + 1)
        missed[call] = misses
    for k in range(len(resident)):
        resident[k] = key_place[k] >= 0
