"""LRU that installs an expert only after two misses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from flashmoe_sim.parameters import INT32, Limits
from flashmoe_sim.policies import lru
from flashmoe_sim.policies._queue import new_queues
from flashmoe_sim.policies.base import EvictingPolicy, PoolShape, State

LONG_AGO = -(1 << 40)


def on_call(state: Any, step: int) -> None:
    _, _, current, _ = state
    current[0] = step


def admits(state: Any, key: int, now: int) -> bool:
    _, missed, current, window = state
    again = current[0] - missed[key] <= window[0]
    missed[key] = LONG_AGO if again else current[0]
    return again  # type: ignore[no-any-return]


@dataclass(frozen=True)
class SecondMiss(EvictingPolicy):
    """LRU that installs an expert on its second miss within a window.

    A miss that comes too late counts as a first miss, and so does the first miss after an eviction. Empty slots make no
    difference.

    window: steps within which the second miss must follow. The default had the most hits of 4, 8, 16 … 1024 in banks of
        a quarter of the experts, on average over the bundled traces.
    """

    name: ClassVar[str] = "second-miss"
    contracts: ClassVar[tuple[str, ...]] = ("atomic", "sequential")
    source: ClassVar[str] = "llama.cpp RFC #20757, which gives no window"
    kernels: ClassVar[dict[str, Any]] = {**lru.Lru.kernels, "on_call": on_call, "admits": admits}
    limits: ClassVar[Limits] = {"window": (1, INT32)}

    window: int = 32

    def allocate(self, shape: PoolShape) -> State:
        missed = np.full(shape.keys, LONG_AGO)
        return new_queues(shape.slots), missed, np.zeros(1, np.int64), np.array([self.window])
