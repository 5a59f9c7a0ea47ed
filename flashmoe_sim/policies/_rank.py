"""The slot of the least rank, for policies that give each resident a number: i64 of every slot, EMPTY if none is."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim._jit import inlined

EMPTY = np.iinfo(np.int64).max
HIGH = 32  # a rank of two numbers: the one that decides first begins at this bit
LOW = 2**HIGH - 1
VECTOR = 8


def new_ranks(slots: int) -> NDArray[np.int64]:
    """Ranks of a bank of empty slots: i64, whole vectors of them."""
    return np.full(-(-slots // VECTOR) * VECTOR, EMPTY, np.int64)


@inlined
def least_ranked(rank: Any, slot_key: Any, blocked: Any, mark: int) -> int:
    """The slot of the least rank that is not blocked, or -1. No two ranks are equal."""
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
