"""LRU with a bound on the installs of each routed call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from flashmoe_sim.parameters import INT32, Limits
from flashmoe_sim.policies import lru
from flashmoe_sim.policies._queue import new_queues
from flashmoe_sim.policies.base import EvictingPolicy, PoolShape, State


def on_call(state: Any, step: int) -> None:
    _, left, cap = state
    left[0] = cap[0]


def admits(state: Any, key: int, now: int) -> bool:
    _, left, _ = state
    if left[0] == 0:
        return False
    left[0] -= 1
    return True


@dataclass(frozen=True)
class BoundedLru(EvictingPolicy):
    """LRU that installs only the first misses of a layer in each step.

    The CPU computes the misses beyond, so that a step never waits for more than a few uploads. A layer has one routed
    call in a step, so the bound holds per call.

    cap: installs per routed call. The source measured 18.4 tok/s without its cache and 24.2 with 48 slots and a cap of
        2, hence the default.
    """

    name: ClassVar[str] = "bounded-lru"
    contracts: ClassVar[tuple[str, ...]] = ("atomic", "sequential")
    source: ClassVar[str] = "llama.cpp pull request #27861"
    kernels: ClassVar[dict[str, Any]] = {**lru.Lru.kernels, "on_call": on_call, "admits": admits}
    limits: ClassVar[Limits] = {"cap": (1, INT32)}

    cap: int = 2

    def allocate(self, shape: PoolShape) -> State:
        return new_queues(shape.slots), np.zeros(1, np.int64), np.array([self.cap])
