"""Second chance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from flashmoe_sim.policies._queue import move_to_newest, new_queues
from flashmoe_sim.policies.base import EvictingPolicy, PoolShape, State, by_name


def on_hit(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    used = state[1]
    used[slot] = True


def on_install(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    link, used = state
    used[slot] = False
    move_to_newest(link, slot, link.shape[1] - 1)


def choose_victim(state: Any, slot_key: Any, blocked: Any, mark: int) -> int:
    link, used = state
    end = link.shape[1] - 1
    slot = link[1, end]
    while slot != end:
        newer = link[1, slot]
        if blocked[slot] != mark and slot_key[slot] >= 0:
            if not used[slot]:
                return np.int64(slot)  # type: ignore[return-value]
            used[slot] = False
            move_to_newest(link, slot, end)
            if newer == end:
                return np.int64(slot)  # type: ignore[return-value]
        slot = newer
    return -1


@dataclass(frozen=True)
class Clock(EvictingPolicy):
    """Evict the oldest install without a hit; a hit gives an expert another round (second chance).

    A queue with one bit for each resident: a hit sets it, and a new expert enters with it clear. To evict, take the
    oldest; if its bit is set, clear it, put the expert back as the newest, and take the next. The hand of a clock over
    fixed places does the same. Residents that may not be evicted are skipped and keep their place and bit.
    """

    name: ClassVar[str] = "clock"
    source: ClassVar[str] = "Corbató 1968, with one bit"
    kernels: ClassVar[dict[str, Any]] = by_name(on_hit, on_install, choose_victim)

    def allocate(self, shape: PoolShape) -> State:
        return new_queues(shape.slots), np.zeros(shape.slots, np.bool_)
