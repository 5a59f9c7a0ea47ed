"""Class-LRU that leaves a share of the misses out of a full bank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from flashmoe_sim.parameters import Limits
from flashmoe_sim.policies.base import PoolShape, State, by_name
from flashmoe_sim.policies.class_lru import ClassLru, use

RESIDENT, CAPACITY, MISSES = range(3)  # the last: since the bank was full


def on_install(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    use(state, slot, key)
    state[7][RESIDENT] += 1


def on_evict(state: Any, slot: int, key: int) -> None:
    state[7][RESIDENT] -= 1


def admits(state: Any, key: int, now: int) -> bool:
    counted, share = state[7], state[8]
    if counted[RESIDENT] < counted[CAPACITY]:
        return True
    counted[MISSES] += 1
    return int(counted[MISSES] * share[0]) == int((counted[MISSES] - 1) * share[0])


@dataclass(frozen=True)
class SharedClassLru(ClassLru):
    """Class-LRU that leaves a share of the misses out of a full bank: the CPU computes them, beside the GPU.

    Until the bank is full, every miss is installed. Then of any n misses in a row the share of n is left out, rounded
    down or up. A use without an install does not count. How the engine chooses is not known, but it can hardly round
    the share in each call, which has few misses: 0.9, 0.95 and 0.98, which its own script tries, would be the same.
    If the share is right on average, choosing at random and counting such uses moves the hit rate of the two bundled
    traces that `class-lru` names by up to 1.7 points.

    share: of the misses, for the CPU.
    """

    name: ClassVar[str] = "shared-class-lru"
    contracts: ClassVar[tuple[str, ...]] = ("atomic", "sequential")
    source: ClassVar[str] = "ggml-org/llama.cpp b12191: docs/moe-cache.md, --moe-cache-cpu-share"
    kernels: ClassVar[dict[str, Any]] = ClassLru.kernels | by_name(on_install, on_evict, admits)
    limits: ClassVar[Limits] = {**ClassLru.limits, "share": (0, 1)}

    share: float = 0.5

    def allocate(self, shape: PoolShape) -> State:
        counted = np.array([0, shape.capacity, 0], np.int64)
        return (*super().allocate(shape), counted, np.array([self.share]))
