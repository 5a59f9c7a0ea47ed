"""Queues as doubly linked lists in one array, for policies that evict the oldest item of a queue.

An item is a slot or a key, in one queue at most. `link[0, item]` is its older neighbour and `link[1, item]` its newer
one. The last columns are the ends, one for each queue: an end's newer neighbour is the oldest item, and its older
neighbour is the newest. The end of an empty queue is linked to itself.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim._jit import inlined


def new_queues(items: int, *, queues: int = 1) -> NDArray[np.uint32]:
    """Empty queues for items 0..items-1: u32 [2, items + queues], everything linked to itself."""
    return np.tile(np.arange(items + queues, dtype=np.uint32), (2, 1))


@inlined
def take_out(link: NDArray[np.uint32], item: int) -> None:
    """Take `item` out of its queue, if it is in one. It must be put into a queue before it is taken out again."""
    older, newer = link[0, item], link[1, item]
    link[1, older] = newer
    link[0, newer] = older


@inlined
def put_newest(link: NDArray[np.uint32], item: int, end: int) -> None:
    """Put `item`, which must be in no queue, at the newest place of the queue of `end`."""
    newest = link[0, end]
    link[0, item] = newest
    link[1, item] = end
    link[1, newest] = item
    link[0, end] = item


@inlined
def move_to_newest(link: NDArray[np.uint32], item: int, end: int) -> None:
    """Move `item` from its queue, if it is in one, to the newest place of the queue of `end`."""
    take_out(link, item)
    put_newest(link, item, end)


@inlined
def oldest(
    link: NDArray[np.uint32], end: int, slot_key: NDArray[np.int32], blocked: NDArray[np.int64], mark: int
) -> int:
    """The oldest slot in the queue of `end` that holds an expert and is not blocked, or -1."""
    slot = link[1, end]
    while slot != end:
        if blocked[slot] != mark and slot_key[slot] >= 0:
            return np.int64(slot)  # type: ignore[return-value]
        slot = link[1, slot]
    return -1
