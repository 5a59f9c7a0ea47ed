"""The list of each layer in colibri: an LRU whose misses of a call come in together at its end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.policies.base import EvictingPolicy, PoolShape, State, by_name

SPAN = 1 << 20  # of the order of use in a call; a call has fewer experts than half of it


def on_call(state: Any, step: int) -> None:
    _, count, _ = state
    count[0] += 1
    count[1] = 0


def on_hit(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    order, count, _ = state
    order[slot] = count[0] * SPAN + count[1]
    count[1] += 1


def on_install(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    order, count, _ = state
    order[slot] = (count[0] + 1) * SPAN - 1 - count[1]
    count[1] += 1


def admits(state: Any, key: int, now: int) -> bool:
    return not state[2][key]


def choose_victim(state: Any, slot_key: Any, blocked: Any, mark: int) -> int:
    order, count, _ = state
    new, oldest, first_miss = count[0] * SPAN + SPAN // 2, -1, -1
    for slot in range(len(slot_key)):
        if slot_key[slot] < 0 or blocked[slot] == mark:
            continue
        if order[slot] >= new:
            if first_miss < 0 or order[slot] > order[first_miss]:
                first_miss = slot
        elif oldest < 0 or order[slot] < order[oldest]:
            oldest = slot
    return oldest if oldest >= 0 else first_miss


@dataclass(frozen=True)
class StagedLru(EvictingPolicy):
    """The least recently used expert is evicted; misses of a call count as used after its hits, the last one first.

    The engine reads the misses of a call beside its list and then takes them in from the last one to the first, at most
    as many as the list has slots: of more, the last ones stay. It takes a call of more than 64 experts in parts of 64;
    here all are one part.
    on_gpu, in_ram: experts of all layers that are pinned on the GPU and in RAM, the most used ones on the GPU. pinned:
    of each layer, bool [experts], those that never enter the list.
    """

    name: ClassVar[str] = "staged-lru"
    source: ClassVar[str] = "JustVugg/colibri 003a0b9b8: c/colibri.c, moe()"
    kernels: ClassVar[dict[str, Any]] = by_name(on_call, on_hit, on_install, admits, choose_victim)

    on_gpu: int = 0
    in_ram: int = 0
    pinned: dict[int, NDArray[np.bool_]] = field(default_factory=dict, compare=False, repr=False)

    def allocate(self, shape: PoolShape) -> State:
        pinned = self.pinned.get(shape.layer, np.zeros(shape.keys, np.bool_))
        return np.zeros(shape.slots, np.int64), np.zeros(2, np.int64), pinned
