"""Stack-distance loops: the counts of every bank size from one walk over a layer's calls.

LRU and min keep the inclusion property if each call is served as a whole: the residents of a bank of C slots are the
first C keys of one list. A request then hits in every bank larger than its key's place in that list.

Source: Mattson et al. 1970 (stack algorithms), extended here from single references to whole calls.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim._jit import inlined, jit
from flashmoe_sim.policies.base import NEVER

I64 = NDArray[np.int64]
LANES = np.uint64(8)
ONE = np.uint64(1)


@inlined
def longest_call(offset: Any) -> int:
    """References of the longest call; numba's array functions would take a second to compile, so kernels loop."""
    longest = 0
    for call in range(len(offset) - 1):
        longest = max(longest, offset[call + 1] - offset[call])
    return longest


def lru(key: NDArray[np.uint32], offset: I64, distinct: int, rank: NDArray[Any], depths: I64, deepest: I64) -> int:
    """Count LRU depths, with a call's experts stamped in order of first reference; return how many keys occurred.

    distinct: how many had occurred before, in earlier chunks of the calls.
    rank: u8 or u16 [keys], a permutation of 0..keys-1; becomes each key's place in the list, the most recent first.
    depths: i64 [keys + 1], requests by their key's place when the call began, `keys` for a first request.
    deepest: i64 [keys + 1], calls by their deepest request.
    """
    keys = len(rank)
    seen, scratch = np.full(keys, -1, np.int32), np.zeros((3, keys + int(LANES)), rank.dtype)
    now: int = _lru(key, offset, distinct, rank, depths, deepest, seen, scratch)
    return now


@jit
def _lru(key: Any, offset: Any, distinct: int, rank: Any, depths: Any, deepest: Any, seen: Any, scratch: Any) -> int:
    """seen: i32 [keys], -1. scratch: of the type of `rank`, [3, keys + LANES], zeros."""
    member, at, before = scratch[0], scratch[1], scratch[2]
    keys = len(rank)
    for call in range(len(offset) - 1):
        n, worst, known = np.uint64(0), 0, distinct
        for r in range(np.uint64(offset[call]), np.uint64(offset[call + 1])):
            k = key[r]
            if seen[k] == call:
                continue
            seen[k] = call
            member[n] = k
            at[n] = rank[k]
            n += ONE
            depth: Any = np.int64(rank[k])
            if depth >= known:  # keys that never occurred are behind all others
                depth = keys
                distinct += 1
            depths[depth] += 1
            worst = max(worst, depth)
        deepest[worst] += 1
        for i in range(n, n + LANES):
            at[i] = 0
        # Every key moves down by the number of the call's keys that were below it. Eight at a time stay in registers
        # while the loop over all keys runs as vector instructions.
        if n > LANES:
            for k in range(keys):
                before[k] = rank[k]
        for base in range(np.uint64(0), n, LANES):
            a, b, c, d = at[base], at[base + 1], at[base + 2], at[base + 3]
            e, f, g, h = at[base + 4], at[base + 5], at[base + 6], at[base + 7]
            if n <= LANES:
                for k in range(keys):
                    p = rank[k]
                    rank[k] = p + (a > p) + (b > p) + (c > p) + (d > p) + (e > p) + (f > p) + (g > p) + (h > p)
            else:
                for k in range(keys):
                    p = before[k]
                    rank[k] += (a > p) + (b > p) + (c > p) + (d > p) + (e > p) + (f > p) + (g > p) + (h > p)
        for i in range(n):
            rank[member[i]] = n - ONE - i
    return distinct


@jit
def deepest_calls(key: Any, offset: Any, rank: Any, deepest: Any) -> None:
    """Count, in i64 [keys + 1], the calls by the largest `rank`, u16 [keys], that they ask for."""
    for call in range(len(offset) - 1):
        worst = np.uint16(0)
        for r in range(np.uint64(offset[call]), np.uint64(offset[call + 1])):
            worst = max(worst, rank[key[r]])
        deepest[worst] += 1


def min_bypass(
    key: NDArray[np.uint32],
    offset: I64,
    upcoming: NDArray[np.int32],
    next_use: NDArray[np.int32],
    counted: I64,
) -> int:
    """Count the depths of min with bypass under the contract `atomic`; return how many keys occurred.

    upcoming: i32 [references], where the next call that requests the key does so, or NEVER.
    next_use: i32 [keys + 1], the list; -1 at first, and always behind the last.
    counted: i64 [3, keys + 1], requests by depth and calls by their deepest request, as for `lru`, then requests by the
    largest bank, in slots, that misses them and does not admit them.

    The list holds only next uses: the keys a call requests are those with a next use before the call's end, and they
    leave gaps in the list. After the call, a bank keeps the nearest of its old next uses and all new ones. So every new
    next use is carried down the list: each place keeps the nearer of its own and the carried one, and the first gap
    takes what is left. If they are carried in ascending order, none is displaced by a later one, and the places above
    it stay as they are.
    """
    largest = int(np.diff(offset).max(initial=0))
    seen, uses = np.full(len(next_use) - 1, -1, np.int32), np.zeros(largest, np.int32)
    of_call = np.zeros((4, largest), np.uint32)
    held: int = _min_bypass(key, offset, upcoming, next_use, counted, seen, uses, of_call)
    return held


@jit
def _min_bypass(
    key: Any, offset: Any, upcoming: Any, next_use: Any, counted: Any, seen: Any, uses: Any, of_call: Any
) -> int:
    """seen: i32 [keys], -1. uses: i32 [requests], and of_call: u32 [4, requests], scratch for the longest call."""
    depths, deepest, declined = counted[0], counted[1], counted[2]
    # request_of is by reference of the call, the others by its request.
    request_of, ascending, found, settled = of_call[0], of_call[1], of_call[2], of_call[3]
    keys = len(next_use) - 1
    now, held = 0, 0
    for call in range(len(offset) - 1):
        begin, end = np.uint64(offset[call]), np.int32(offset[call + 1])
        n = np.uint64(0)
        for r in range(begin, np.uint64(offset[call + 1])):
            k = key[r]
            if seen[k] == call:
                continue
            seen[k] = call
            now += 1
            uses[n] = upcoming[r] if upcoming[r] != NEVER else NEVER - now
            request_of[r - begin] = n
            found[n] = keys
            n += ONE
        for i in range(n):
            rank = np.uint64(0)
            for j in range(n):
                rank += np.uint64(uses[j] < uses[i])
            ascending[rank] = i
        start = np.uint64(0)
        for turn in range(n):
            i = ascending[turn]
            carried = uses[i]
            place = start
            stood = next_use[place]
            while end <= stood < carried:
                place += ONE
                stood = next_use[place]
            settled[i] = place
            start = place + ONE
            while stood >= end:
                next_use[place] = min(stood, carried)
                carried = max(stood, carried)
                place += ONE
                stood = next_use[place]
            next_use[place] = carried
            if stood >= 0:
                found[request_of[np.uint64(stood) - begin]] = place
            else:
                held += 1
        worst = np.uint32(0)
        for i in range(n):
            depths[found[i]] += 1
            declined[min(found[i], settled[i])] += 1
            worst = max(worst, found[i])
        deepest[worst] += 1
    return held
