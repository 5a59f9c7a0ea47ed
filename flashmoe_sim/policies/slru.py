"""Segmented LRU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from flashmoe_sim.policies._queue import move_to_newest, new_queues, oldest, put_newest, take_out
from flashmoe_sim.policies._regions import HELD, ROOM, check_share, slots_of
from flashmoe_sim.policies.base import EvictingPolicy, PoolShape, State, by_name


def on_hit(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    link, is_protected, size = state
    probation, protected = link.shape[1] - 2, link.shape[1] - 1
    if not is_protected[slot]:
        is_protected[slot] = True
        if size[HELD] < size[ROOM]:
            size[HELD] += 1
        else:
            demoted = link[1, protected]
            is_protected[demoted] = False
            move_to_newest(link, demoted, probation)
    move_to_newest(link, slot, protected)


def on_install(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    link, is_protected, _ = state
    is_protected[slot] = False
    put_newest(link, slot, link.shape[1] - 2)


def choose_victim(state: Any, slot_key: Any, blocked: Any, mark: int) -> int:
    link = state[0]
    victim = oldest(link, link.shape[1] - 2, slot_key, blocked, mark)
    if victim < 0:
        victim = oldest(link, link.shape[1] - 1, slot_key, blocked, mark)
    return victim  # type: ignore[no-any-return]


def on_evict(state: Any, slot: int, key: int) -> None:
    link, is_protected, size = state
    take_out(link, slot)
    size[HELD] -= is_protected[slot]


@dataclass(frozen=True)
class Slru(EvictingPolicy):
    """Evict the least recently used expert not hit since its install; the others are protected (segmented LRU).

    Two lists by last use. A new expert is on probation, and a hit there makes it protected. If the protected list is
    full already, its oldest goes back to probation as the most recent. The victim is the oldest evictable expert on
    probation, or, if there is none, the oldest protected one.

    protected: share of the bank that may be protected. The slots are rounded down: at least one, at most all but one.
    """

    name: ClassVar[str] = "slru"
    source: ClassVar[str] = "Karedla, Love and Wherry 1994, Computer 27(3)"
    kernels: ClassVar[dict[str, Any]] = by_name(on_hit, on_install, choose_victim, on_evict)

    protected: float = 0.8

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share(self.name, "protected", self.protected)

    def allocate(self, shape: PoolShape) -> State:
        size = np.zeros(2, np.int64)
        size[ROOM] = slots_of(self.protected, shape.capacity)
        return new_queues(shape.slots, queues=2), np.zeros(shape.slots, np.bool_), size
