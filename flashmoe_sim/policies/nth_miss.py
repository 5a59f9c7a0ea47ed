"""LRU that installs an expert after a number of misses, and after more of them once the bank is full."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from flashmoe_sim.io.errors import OutOfRange
from flashmoe_sim.policies import lru
from flashmoe_sim.policies._queue import move_to_newest, new_queues
from flashmoe_sim.policies.base import EvictingPolicy, PoolShape, State, by_name

HELD, CAPACITY, EMPTY, FULL, CAP, LEFT = range(6)


def on_call(state: Any, step: int) -> None:
    _, _, number = state
    number[LEFT] = number[CAP]


def admits(state: Any, key: int, now: int) -> bool:
    _, missed, number = state
    missed[key] += 1
    needed = number[EMPTY] if number[HELD] < number[CAPACITY] else number[FULL]
    if missed[key] < needed or number[LEFT] == 0:
        return False
    number[LEFT] -= 1
    return True


def on_install(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    link, missed, number = state
    move_to_newest(link, slot, link.shape[1] - 1)
    missed[key] = 0
    number[HELD] += 1


def on_evict(state: Any, slot: int, key: int) -> None:
    _, _, number = state
    number[HELD] -= 1


@dataclass(frozen=True)
class NthMiss(EvictingPolicy):
    """LRU that installs an expert on its n-th miss, and later if it must displace another.

    All misses of an expert since the start, or since it was evicted, count until it is installed.
    An expert that a call may not install, because it has installed its most, keeps its count. The engine counts an
    expert that is still on its way as missed; here it is there for the layer's next call.

    empty: misses of an expert that takes an empty slot. full: of one that displaces another, at least as many.
    cap: installs per routed call.
    """

    name: ClassVar[str] = "nth-miss"
    contracts: ClassVar[tuple[str, ...]] = ("atomic", "sequential")
    source: ClassVar[str] = "leloch/llama.cpp e3096b046: moe-cache.cu, docs/backend/CUDA-MOE-CACHE.md"
    kernels: ClassVar[dict[str, Any]] = lru.Lru.kernels | by_name(on_call, admits, on_install, on_evict)

    empty: int = 2
    full: int = 8
    cap: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in (("empty", 1), ("full", self.empty), ("cap", 1)):
            if not least <= (value := getattr(self, name)) < 2**31:
                raise OutOfRange(f"policy nth-miss: {name}={value} is not in {least}..{2**31 - 1}")

    def allocate(self, shape: PoolShape) -> State:
        number = np.array([0, shape.capacity, self.empty, self.full, self.cap, self.cap])
        return new_queues(shape.slots), np.zeros(shape.keys, np.int64), number
