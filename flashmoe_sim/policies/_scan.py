"""Searches over all slots, for policies whose order of eviction changes with time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim._jit import inlined

MOST = np.iinfo(np.int64).max


@inlined
def least(
    rank: NDArray[np.int64],
    last: NDArray[np.int64],
    slot_key: NDArray[np.int32],
    blocked: NDArray[np.int64],
    mark: int,
) -> int:
    """The evictable slot with the smallest `rank`, among equals the smallest `last`, or -1.

    rank, last: of each slot; no two occupied slots have the same `last`.
    """
    lowest = MOST
    for slot in range(len(slot_key)):
        allowed = slot_key[slot] >= 0 and blocked[slot] != mark
        lowest = min(lowest, rank[slot] if allowed else MOST)
    earliest = MOST
    for slot in range(len(slot_key)):
        allowed = slot_key[slot] >= 0 and blocked[slot] != mark and rank[slot] == lowest
        earliest = min(earliest, last[slot] if allowed else MOST)
    victim = -1
    for slot in range(len(slot_key)):
        found = slot_key[slot] >= 0 and blocked[slot] != mark and last[slot] == earliest
        victim = max(victim, slot if found else -1)
    return victim


@inlined
def least_ratio(
    uses: NDArray[np.int64],
    since: NDArray[np.int64],
    last: NDArray[np.int64],
    now: int,
    slot_key: NDArray[np.int32],
    blocked: NDArray[np.int64],
    mark: int,
) -> int:
    """The evictable slot with the smallest uses / (now - since), among equals the smallest `last`, or -1.

    A ratio over no time is larger than any other. a/b < c/d is tested as ad < cb, which is exact as long as uses and
    times stay below 2^31.
    """
    victim, fewest, longest = -1, np.int64(0), np.int64(0)
    for slot in range(len(slot_key)):
        if slot_key[slot] < 0 or blocked[slot] == mark:
            continue
        time = now - since[slot]
        mine, other = uses[slot] * longest, fewest * time
        if victim < 0 or mine < other or (mine == other and last[slot] < last[victim]):
            victim, fewest, longest = slot, uses[slot], time
    return victim
