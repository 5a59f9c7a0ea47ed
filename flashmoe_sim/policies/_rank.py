"""The slot with the lowest rank, for policies that rank residents: i64 per slot, EMPTY if the slot is empty."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim._jit import inlined

EMPTY = np.iinfo(np.int64).max
HIGH = 32  # in a rank made of two numbers, the more significant one begins at this bit
LOW = 2**HIGH - 1
VECTOR = 8


def new_ranks(slots: int) -> NDArray[np.int64]:
    """Ranks for a bank of empty slots: i64, padded to whole vectors."""
    return np.full(-(-slots // VECTOR) * VECTOR, EMPTY, np.int64)


@inlined
def least_ranked(rank: Any, slot_key: Any, blocked: Any, mark: int) -> int:
    """The unblocked slot with the lowest rank, or -1. No two ranks are equal."""
    least = EMPTY
    for slot in range(len(rank)):
        least = min(least, rank[slot])
    found = -1
    for slot in range(len(rank)):
        found = max(found, slot if rank[slot] == least else -1)
    if least == EMPTY or blocked[found] == mark:
        found, least = -1, EMPTY
        for slot in range(len(slot_key)):
            if rank[slot] < least and blocked[slot] != mark:
                found, least = slot, rank[slot]
    return found
