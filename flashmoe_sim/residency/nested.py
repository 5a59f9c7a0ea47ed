"""The counts of min with bypass for several bank sizes in one walk over a pool's calls.

A larger bank under min holds all that a smaller one holds. So the banks are kept as one list of levels, each with what
the next larger bank holds in addition, and what one level drops falls to the next.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flashmoe_sim._jit import jit
from flashmoe_sim.policies.base import NEVER
from flashmoe_sim.residency import tally


@jit
def furthest_place(next_use: Any) -> int:
    """The place with the largest next use; values are unique."""
    furthest = np.int32(-1)
    for place in range(len(next_use)):
        use = next_use[place]
        furthest = use if use > furthest else furthest
    place = 0
    while next_use[place] != furthest:
        place += 1
    return place


@jit
def min_bypass(key: Any, offset: Any, row: Any, upcoming: Any, keys: int, sizes: Any, counts: Any) -> None:
    """Replay one pool for all of `sizes` under the contract `atomic`.

    sizes: i64 [banks], slots, strictly ascending. counts: i64 [banks, rows, N_COLUMNS], added to.
    The other arguments are as for the atomic loop.
    """
    levels = len(sizes)
    begin = np.zeros(levels + 1, np.int64)
    begin[1:] = sizes
    room = np.diff(begin)
    top = np.full(levels, -1, np.int64)
    next_use = np.full(begin[-1], -1, np.int32)
    place_key = np.zeros(begin[-1], np.uint32)
    key_place = np.full(keys, -1, np.int32)
    seen = np.full(keys, -1, np.int64)
    level_of = np.full(keys, levels, np.int64)
    level_before = np.zeros(keys, np.int64)
    member = np.zeros(keys, np.uint32)
    member_use = np.zeros(keys, np.int32)
    by_level = np.zeros((4, levels + 1), np.int64)
    missed, declined, cold, deepest_calls = by_level[0], by_level[1], by_level[2], by_level[3]
    now, requests, references, calls = 0, 0, 0, 0
    for call in range(len(offset) - 1):
        n = 0
        for r in range(offset[call], offset[call + 1]):
            k = key[r]
            if seen[k] == call:
                continue
            seen[k] = call
            requests += 1
            now += 1
            use = upcoming[r] if upcoming[r] != NEVER else NEVER - now
            level = level_of[k]
            level_before[k] = level
            if level == 0:
                place = key_place[k]
                next_use[place] = use
                if top[0] == place:
                    top[0] = -1
                elif top[0] >= 0 and use > next_use[top[0]]:
                    top[0] = place
                continue
            missed[level] += 1
            at = n
            while at > 0 and level_before[member[at - 1]] > level:
                member[at], member_use[at] = member[at - 1], member_use[at - 1]
                at -= 1
            member[at], member_use[at] = k, use
            n += 1
        deepest_calls[level_before[member[n - 1]] if n else 0] += 1
        for i in range(n):
            carried, use = member[i], member_use[i]
            level = level_of[carried]
            hole = np.int64(key_place[carried])
            at = 0
            while at < level:
                if room[at]:
                    hole = begin[at + 1] - room[at]
                    room[at] -= 1
                    cold[at:] += 1
                    level = at
                    break
                if top[at] < 0:
                    top[at] = begin[at] + furthest_place(next_use[begin[at] : begin[at + 1]])
                place = top[at]
                if next_use[place] > use:
                    dropped, dropped_use = place_key[place], next_use[place]
                    place_key[place] = carried
                    next_use[place] = use
                    key_place[carried] = place
                    level_of[carried] = at
                    carried, use = dropped, dropped_use
                    top[at] = -1
                declined[at] += (seen[carried] == call) & (level_before[carried] > at)
                at += 1
            key_place[carried] = hole
            level_of[carried] = level
            if hole >= 0:
                place_key[hole] = carried
                next_use[hole] = use
                if top[level] == hole:
                    top[level] = -1
                elif top[level] >= 0 and use > next_use[top[level]]:
                    top[level] = hole
        calls += 1
        references += offset[call + 1] - offset[call]
        if call + 2 == len(offset) or row[call + 1] != row[call]:
            total, whole = 0, calls
            for bank in range(levels - 1, -1, -1):
                total += missed[bank + 1]
                whole -= deepest_calls[bank + 1]
                into = counts[bank, row[call]]
                into[tally.CALLS] += calls
                into[tally.REFS] += references
                into[tally.REQUESTS] += requests
                into[tally.HITS] += requests - total
                into[tally.MISSES] += total
                into[tally.BYPASSED] += declined[bank]
                into[tally.COLD] += cold[bank]
                into[tally.EVICTIONS] += total - declined[bank] - cold[bank]
                into[tally.FULL_HIT_CALLS] += whole
            by_level[:] = 0
            requests, references, calls = 0, 0, 0
