"""The contract `sequential` for a bank of slots, where only counts and final contents are wanted.

These loops do for three policies what the general loop of `sequential` does, without slots. They exist for speed: the
general loop chases from key to slot to queue, these keep everything by key.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flashmoe_sim._jit import jit
from flashmoe_sim.policies.base import NEVER
from flashmoe_sim.residency.tally import BYPASSED, COLD, FULL_HIT_CALLS, MISSES

VECTOR = 32


@jit
def lru(key: Any, offset: Any, row: Any, upcoming: Any, capacity: int, resident: Any, counts: Any) -> None:
    """LRU with at least two slots.

    resident: u8 [keys], all 0 at first, 1 for the contents at the end.
    counts: i64 [rows, N_COLUMNS]; only the columns imported above are added to, since the others follow from them.
    The other arguments are as for the sequential loop.
    """
    end = len(resident)
    older = np.full(end + 1, end, np.uint32)
    newer = np.full(end + 1, end, np.uint32)
    newest = np.uint32(end)
    held = 0
    for call in range(len(offset) - 1):
        misses, cold = 0, 0
        for r in range(offset[call], offset[call + 1]):
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
                    cold += 1
                else:
                    victim = newer[end]
                    after = newer[victim]
                    newer[end] = after
                    older[after] = end
                    resident[victim] = 0
            older[k] = newest
            newer[newest] = k
            newest = k
        counts[row[call], MISSES] += misses
        counts[row[call], COLD] += cold
        counts[row[call], FULL_HIT_CALLS] += misses == 0


@jit
def fifo(key: Any, offset: Any, row: Any, upcoming: Any, capacity: int, resident: Any, counts: Any) -> None:
    """FIFO: the contents are the last `capacity` installs. The arguments are as for `lru`."""
    installed = np.full(len(resident), -capacity, np.int64)
    installs = 0
    for call in range(len(offset) - 1):
        before = installs
        for r in range(offset[call], offset[call + 1]):
            k = key[r]
            if installed[k] <= installs - capacity:
                installs += 1
                installed[k] = installs
        counts[row[call], MISSES] += installs - before
        counts[row[call], COLD] += min(installs, capacity) - min(before, capacity)
        counts[row[call], FULL_HIT_CALLS] += installs == before
    for k in range(len(resident)):
        resident[k] = installed[k] > max(installs - capacity, 0)


@jit
def furthest_of(next_use: Any) -> int:
    """The place with the largest next use, i32 [whole vectors]; the values are unique but for -1 where empty."""
    furthest = np.int32(-1)
    for place in range(len(next_use)):
        use = next_use[place]
        furthest = use if use > furthest else furthest
    found = np.int32(0)
    for place in range(len(next_use)):
        found |= np.int32(place) & -np.int32(next_use[place] == furthest)
    return int(found)


@jit
def min_(
    key: Any, offset: Any, row: Any, upcoming: Any, capacity: int, resident: Any, counts: Any, bypass: bool
) -> None:
    """Belady's min, which may decline to admit where `bypass`. The arguments are as for `lru`."""
    next_use = np.full(-(-capacity // VECTOR) * VECTOR, -1, np.int32)
    place_key = np.zeros(capacity, np.uint32)
    key_place = np.full(len(resident), -1, np.int32)
    held = 0
    for call in range(len(offset) - 1):
        misses, cold, bypassed = 0, 0, 0
        for r in range(offset[call], offset[call + 1]):
            k = key[r]
            use = upcoming[r] if upcoming[r] != NEVER else NEVER - (r + 1)
            place = key_place[k]
            if place >= 0:
                next_use[place] = use
                continue
            misses += 1
            if held < capacity:
                at = held
                held += 1
                cold += 1
            else:
                at = furthest_of(next_use)
                if bypass and use > next_use[at]:
                    bypassed += 1
                    continue
                key_place[place_key[at]] = -1
            place_key[at] = k
            key_place[k] = at
            next_use[at] = use
        counts[row[call], MISSES] += misses
        counts[row[call], COLD] += cold
        counts[row[call], BYPASSED] += bypassed
        counts[row[call], FULL_HIT_CALLS] += misses == 0
    for k in range(len(resident)):
        resident[k] = key_place[k] >= 0
