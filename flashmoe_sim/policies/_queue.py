"""A queue of slots as a doubly linked list in one array, for policies that evict the oldest of something.

`link[0, slot]` is the older neighbour and `link[1, slot]` the newer one; the last row is the end on both sides.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim._jit import jit


def new_queue(slots: int) -> NDArray[np.uint32]:
    """An empty queue for slots 0..slots-1: u32 [2, slots + 1], each slot linked to itself."""
    return np.tile(np.arange(slots + 1, dtype=np.uint32), (2, 1))


@jit
def move_to_newest(link: NDArray[np.uint32], slot: int) -> None:
    """Take `slot` out of the queue, if it is in, and put it at the newest end."""
    end = link.shape[1] - 1
    older, newer = link[0, slot], link[1, slot]
    link[1, older] = newer
    link[0, newer] = older
    newest = link[0, end]
    link[0, slot] = newest
    link[1, slot] = end
    link[1, newest] = slot
    link[0, end] = slot


@jit
def oldest(link: NDArray[np.uint32], slot_key: NDArray[np.int32], blocked: NDArray[np.int64], mark: int) -> int:
    """The oldest slot that holds something and is not blocked, or -1."""
    end = link.shape[1] - 1
    slot = link[1, end]
    while slot != end:
        if blocked[slot] != mark and slot_key[slot] >= 0:
            return np.int64(slot)  # type: ignore[return-value]
        slot = link[1, slot]
    return -1
