"""Adaptive replacement cache.

State: five queues of keys, oldest first: residents used once since their install, residents used again, the ghosts of
either queue, and all other keys; which queue each key is in; the slot of each resident key; counts of keys, the
capacity and the queue of the last miss; and the target length of the first queue (`p` in the paper).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from flashmoe_sim._jit import inlined
from flashmoe_sim.policies._queue import move_to_newest, new_queues
from flashmoe_sim.policies.base import EvictingPolicy, PoolShape, State, by_name

QUEUES = 5
ONCE, OFTEN, ONCE_GHOST, OFTEN_GHOST, NOWHERE = range(QUEUES)
# Places in the sizes: the lengths of all queues but OFTEN. The number of residents serves as well and changes less.
RESIDENT, CAPACITY, LAST_MISS = OFTEN, QUEUES, QUEUES + 1


def on_hit(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    link, queue, _, size, _ = state
    size[ONCE] -= queue[key] == ONCE
    queue[key] = OFTEN
    move_to_newest(link, key, len(queue) + OFTEN)


def on_miss(state: Any, key: int, now: int) -> None:
    _, queue, _, size, target = state
    size[LAST_MISS] = queue[key]
    if queue[key] == ONCE_GHOST:
        step = max(np.divide(size[OFTEN_GHOST], size[ONCE_GHOST]), 1.0)
        target[0] = min(target[0] + step, float(size[CAPACITY]))
    elif queue[key] == OFTEN_GHOST:
        step = max(np.divide(size[ONCE_GHOST], size[OFTEN_GHOST]), 1.0)
        target[0] = max(target[0] - step, 0.0)


def choose_victim(state: Any, slot_key: Any, blocked: Any, mark: int) -> int:
    link, queue, slot_of, size, target = state
    keys = len(queue)
    once = size[ONCE]
    if mark >= 0:  # -1 blocks nothing
        for slot in range(len(slot_key)):
            if blocked[slot] == mark and slot_key[slot] >= 0:
                once -= queue[slot_key[slot]] == ONCE
    over = once > target[0] or (once == target[0] and size[LAST_MISS] == OFTEN_GHOST)
    first = ONCE if over else OFTEN
    victim = oldest_key(link, keys + first, slot_of, blocked, mark)
    if victim < 0:
        victim = oldest_key(link, keys + ONCE + OFTEN - first, slot_of, blocked, mark)
    return victim  # type: ignore[no-any-return]


@inlined
def oldest_key(link: Any, end: int, slot_of: Any, blocked: Any, mark: int) -> int:
    """The slot of the oldest key in the queue of `end` that is not blocked, or -1."""
    key = link[1, end]
    while key != end and blocked[slot_of[key]] == mark:
        key = link[1, key]
    return -1 if key == end else slot_of[key]


def on_evict(state: Any, slot: int, key: int) -> None:
    link, queue, _, size, _ = state
    ghost = queue[key] + ONCE_GHOST
    size[ONCE] -= ghost == ONCE_GHOST
    size[RESIDENT] -= 1
    size[ghost] += 1
    queue[key] = ghost
    move_to_newest(link, key, len(queue) + ghost)
    if size[RESIDENT] >= size[CAPACITY]:
        trim(link, queue, size)


def on_install(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    link, queue, slot_of, size, _ = state
    slot_of[key] = slot
    was = queue[key]
    into = ONCE if was == NOWHERE else OFTEN
    size[was] -= 1
    size[ONCE] += into == ONCE
    size[RESIDENT] += 1
    queue[key] = into
    move_to_newest(link, key, len(queue) + into)
    trim(link, queue, size)


@inlined
def trim(link: Any, queue: Any, size: Any) -> None:
    """Forget the oldest keys of list 1 beyond the capacity, and of list 2 if all lists exceed twice the capacity."""
    while size[ONCE_GHOST] > 0 and size[ONCE] + size[ONCE_GHOST] > size[CAPACITY]:
        forget_oldest(link, queue, size, ONCE_GHOST)
    while size[OFTEN_GHOST] > 0 and size[RESIDENT] + size[ONCE_GHOST] + size[OFTEN_GHOST] > 2 * size[CAPACITY]:
        forget_oldest(link, queue, size, OFTEN_GHOST)


@inlined
def forget_oldest(link: Any, queue: Any, size: Any, ghost: int) -> None:
    key = link[1, len(queue) + ghost]
    move_to_newest(link, key, len(queue) + NOWHERE)
    queue[key] = NOWHERE
    size[ghost] -= 1
    size[NOWHERE] += 1


@dataclass(frozen=True)
class Arc(EvictingPolicy):
    """Evict an expert used once or one used again, in a proportion that adapts when evicted experts are missed (ARC).

    List 1 holds the experts used once since their install, list 2 those used again, and each has a ghost list of the
    experts last evicted from it. A miss in ghost list 1 raises the target length of list 1, a miss in ghost list 2
    lowers it, and either expert goes to list 2; any other miss goes to list 1. The victim is the oldest expert in list
    1 if that list is longer than its target, or just as long and the miss is in ghost list 2; otherwise the oldest in
    list 2. If that list has no evictable expert, the victim comes from the other one. List 1 and its ghosts are at most
    as long as the bank, all four lists at most twice as long.

    List 1 is counted without the experts of the current call, which may not be evicted. Under `atomic`, where a call
    has several misses before anything is evicted, the last miss decides if list 1 is just as long as its target. The
    paper shortens the ghost lists before it evicts; we do so after each eviction and install, which leaves the same
    keys.
    """

    name: ClassVar[str] = "arc"
    ties: ClassVar[str] = "list 1 as long as its target: list 1 after a miss in ghost list 2, else list 2"
    source: ClassVar[str] = "Megiddo and Modha 2003 (FAST), Figure 4"
    kernels: ClassVar[dict[str, Any]] = by_name(on_hit, on_miss, choose_victim, on_evict, on_install)

    def allocate(self, shape: PoolShape) -> State:
        return (
            new_queues(shape.keys, queues=QUEUES),
            np.full(shape.keys, NOWHERE, np.uint8),
            np.zeros(shape.keys, np.int64),
            np.array([0, 0, 0, 0, shape.keys, shape.capacity, NOWHERE], np.int64),
            np.zeros(1),
        )
