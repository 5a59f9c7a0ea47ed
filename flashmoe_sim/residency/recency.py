"""The counts of LRU for several global banks in one walk over the calls, in slots or in bytes.

As long as every call fits the bank, the residents under LRU are the longest fitting prefix of the list of keys by
last use, most recent first. This also holds for keys of different weights: evicted keys lie behind all residents, and
come back only to the front.

Source: Mattson et al. 1970, with the weight above a key summed in a Fenwick tree over the list (Bennett and Kruskal
1975).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flashmoe_sim._jit import jit
from flashmoe_sim.residency import tally


@jit
def add(tree: Any, place: int, amount: int) -> None:
    """Add to one place of a Fenwick tree, i64 [2^n + 1]."""
    while place < len(tree):
        tree[place] += amount
        place += place & -place


@jit
def below(tree: Any, place: int) -> int:
    """The sum over places 1..place."""
    total = 0
    while place > 0:
        total += tree[place]
        place -= place & -place
    return total


@jit
def count_behind(weight: Any, count: Any, surplus: int) -> int:
    """How many keys at the old end of the list must be evicted to free at least `surplus` of weight."""
    place, gone, keys = 0, 0, 0
    step = len(weight) - 1
    while step > 0:
        if place + step < len(weight) and gone + weight[place + step] < surplus:
            place += step
            gone += weight[place]
            keys += count[place]
        step >>= 1
    return keys + 1


@jit
def lru(key: Any, offset: Any, row: Any, size: Any, rooms: Any, counts: Any) -> None:
    """Replay one pool for all of `rooms` under the contract `atomic`.

    size: i64 [keys], what a key weighs. rooms: i64 [banks], each at least the weight of the heaviest call.
    counts: i64 [banks, rows, N_COLUMNS], added to. The other arguments are as for the atomic loop.
    """
    keys, banks = len(size), len(rooms)
    places = 2
    while places < 2 * keys + 1:
        places *= 2
    weight, count = np.zeros((2, places + 1), np.int64)
    stamp = np.zeros(keys, np.int64)  # place in the list, oldest first; 0 for a key that was never requested
    owner = np.full(places + 1, -1, np.int64)
    seen = np.full(keys, -1, np.int64)
    member = np.zeros(keys, np.int64)
    depth = np.zeros(keys, np.int64)
    held = np.zeros(banks, np.int64)
    known, known_weight, last = 0, 0, 0
    for call in range(len(offset) - 1):
        n, deepest = 0, 0
        for r in range(offset[call], offset[call + 1]):
            k = key[r]
            if seen[k] == call:
                continue
            seen[k] = call
            member[n] = k
            depth[n] = known_weight - below(weight, stamp[k] - 1) if stamp[k] else np.iinfo(np.int64).max
            deepest = max(deepest, depth[n])
            n += 1
        if last + n > places:  # compact the list
            last = 0
            weight[:] = 0
            count[:] = 0
            for place in range(1, places + 1):
                k = owner[place]
                owner[place] = -1
                if k >= 0:
                    last += 1
                    stamp[k] = last
                    owner[last] = k
                    add(weight, last, size[k])
                    add(count, last, 1)
        for i in range(n):
            k = member[i]
            if stamp[k]:
                add(weight, stamp[k], -size[k])
                add(count, stamp[k], -1)
                owner[stamp[k]] = -1
            else:
                known += 1
                known_weight += size[k]
            last += 1
            stamp[k] = last
            owner[last] = k
            add(weight, last, size[k])
            add(count, last, 1)
        for bank in range(banks):
            hits = 0
            for i in range(n):
                hits += depth[i] <= rooms[bank]
            surplus = known_weight - rooms[bank]
            holds = known - count_behind(weight, count, surplus) if surplus > 0 else known
            misses = n - hits
            evictions = held[bank] + misses - holds
            held[bank] = holds
            into = counts[bank, row[call]]
            into[tally.CALLS] += 1
            into[tally.REFS] += offset[call + 1] - offset[call]
            into[tally.REQUESTS] += n
            into[tally.HITS] += hits
            into[tally.MISSES] += misses
            into[tally.COLD] += max(misses - evictions, 0)
            into[tally.EVICTIONS] += evictions
            into[tally.FULL_HIT_CALLS] += deepest <= rooms[bank]
