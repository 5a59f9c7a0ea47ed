"""Window TinyLFU.

State: three queues of slots, oldest first: the window and the two parts of the main region; which of them each slot is
in; their lengths; how often each key was used lately; and limits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from flashmoe_sim._jit import inlined
from flashmoe_sim.io.errors import OutOfRange
from flashmoe_sim.policies._queue import move_to_newest, new_queues, oldest, put_newest, take_out
from flashmoe_sim.policies._regions import check_share, slots_of
from flashmoe_sim.policies.base import EvictingPolicy, PoolShape, State, by_name

QUEUES = 3
WINDOW, PROBATION, PROTECTED = range(QUEUES)
MOST_WINDOW, MOST_MAIN, MOST_PROTECTED, USES, SAMPLE = range(QUEUES, QUEUES + 5)
PROTECTED_SHARE = 0.8


def on_hit(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    link, part, size, count = state
    count_use(count, size, key)
    if part[slot] == PROBATION:
        move(link, part, size, slot, PROTECTED)
        if size[PROTECTED] > size[MOST_PROTECTED]:
            move(link, part, size, link[1, len(part) + PROTECTED], PROBATION)
    else:
        move_to_newest(link, slot, len(part) + part[slot])


def on_miss(state: Any, key: int, now: int) -> None:
    _, _, size, count = state
    count_use(count, size, key)


def on_install(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    link, part, size, _ = state
    part[slot] = WINDOW
    size[WINDOW] += 1
    put_newest(link, slot, len(part) + WINDOW)
    settle(link, part, size)


def choose_victim(state: Any, slot_key: Any, blocked: Any, mark: int) -> int:
    link, part, size, count = state
    candidate = oldest(link, len(part) + WINDOW, slot_key, blocked, mark)
    victim = oldest(link, len(part) + PROBATION, slot_key, blocked, mark)
    if victim < 0:
        victim = oldest(link, len(part) + PROTECTED, slot_key, blocked, mark)
    if victim >= 0 and (candidate < 0 or size[WINDOW] < size[MOST_WINDOW]):
        return victim  # type: ignore[no-any-return]
    if victim >= 0 and count[slot_key[candidate]] > count[slot_key[victim]]:
        return victim  # type: ignore[no-any-return]
    return candidate  # type: ignore[no-any-return]


def on_evict(state: Any, slot: int, key: int) -> None:
    link, part, size, _ = state
    size[part[slot]] -= 1
    take_out(link, slot)
    settle(link, part, size)


@inlined
def count_use(count: Any, size: Any, key: int) -> None:
    count[key] += 1
    size[USES] += 1
    if size[USES] >= size[SAMPLE]:
        size[USES] //= 2
        for other in range(len(count)):
            count[other] //= 2


@inlined
def move(link: Any, part: Any, size: Any, slot: int, to: int) -> None:
    size[part[slot]] -= 1
    size[to] += 1
    part[slot] = to
    move_to_newest(link, slot, len(part) + to)


@inlined
def settle(link: Any, part: Any, size: Any) -> None:
    """Move experts that the window has no room for to the main region while that has room."""
    while size[WINDOW] > size[MOST_WINDOW] and size[PROBATION] + size[PROTECTED] < size[MOST_MAIN]:
        move(link, part, size, link[1, len(part) + WINDOW], PROBATION)


@dataclass(frozen=True)
class WTinyLfu(EvictingPolicy):
    """Admit an expert from a small window to the main region only if it is used more often than its victim.

    A new expert enters the window; the main region is an SLRU: a hit on probation promotes an expert to the protected
    part (80%), whose oldest goes back to probation if there are too many. While the main region has room, it takes the
    window's oldest if the window is too long. The victim is the window's oldest evictable expert or the main region's
    (the oldest on probation, else the oldest protected), whichever was used less often; if only one of the two has an
    evictable expert, that one. A window with room for the new expert loses none.

    All uses are counted exactly, hits and misses of every expert; the paper has a sketch with four bits a counter, and
    a doorkeeper. After `sample` bank sizes of uses, all counts are halved, and the number of uses with them.

    window: share of the bank for new experts. A bank of two or more slots has at least one for them. The paper's 1%,
        or one slot, is enough: all that an expert gains in the window is its count.
    sample: uses after which counts are halved, in bank sizes.
    """

    name: ClassVar[str] = "w-tinylfu"
    ties: ClassVar[str] = "equal counts: the window's expert goes"
    source: ClassVar[str] = "Einziger, Friedman and Manes 2017 (TOS 13, 4), section 4"
    kernels: ClassVar[dict[str, Any]] = by_name(on_hit, on_miss, on_install, choose_victim, on_evict)

    window: float = 0.01
    sample: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share(self.name, "window", self.window)
        if self.sample < 1:
            raise OutOfRange(f"policy w-tinylfu: sample={self.sample} is not at least 1, in times the bank")

    def allocate(self, shape: PoolShape) -> State:
        window = slots_of(self.window, shape.capacity)
        main = shape.capacity - window
        protected = slots_of(PROTECTED_SHARE, main) if main > 1 else 0
        return (
            new_queues(shape.slots, queues=QUEUES),
            np.zeros(shape.slots, np.uint8),
            np.array([0, 0, 0, window, main, protected, 0, self.sample * shape.capacity], np.int64),
            np.zeros(shape.keys, np.int64),
        )
