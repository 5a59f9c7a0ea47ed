"""Least frequently used, with all counts halved again and again.

State: the uses of each key, and again of each slot, and how often all were halved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from flashmoe_sim.parameters import INT32, Limits
from flashmoe_sim.policies._scan import least
from flashmoe_sim.policies.base import EvictingPolicy, PoolShape, State, by_name


def on_call(state: Any, step: int) -> None:
    uses, of_slot, _, halved, every = state
    due = step // every[0] - halved[0]
    if due > 0:
        halved[0] += due
        by = min(due, 63)
        for key in range(len(uses)):
            uses[key] >>= by
        for slot in range(len(of_slot)):
            of_slot[slot] >>= by


def on_use(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    uses, of_slot, last, _, _ = state
    uses[key] += 1
    of_slot[slot] = uses[key]
    last[slot] = now


def choose_victim(state: Any, slot_key: Any, blocked: Any, mark: int) -> int:
    _, of_slot, last, _, _ = state
    return least(of_slot, last, slot_key, blocked, mark)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class LfuHalved(EvictingPolicy):
    """Evict the expert with the fewest uses; from time to time all counts are halved and rounded down.

    Counts survive eviction, and a use counts whether it hits or misses.

    every: steps after which the counts are halved.
    """

    name: ClassVar[str] = "lfu-halved"
    ties: ClassVar[str] = "older last use"
    source: ClassVar[str] = "antirez/ds4 80ebbc3: ds4_metal.m:8678-8776, 9666-9830 (route hotness, 16 tokens)"
    kernels: ClassVar[dict[str, Any]] = by_name(on_call, on_use, choose_victim)
    limits: ClassVar[Limits] = {"every": (1, INT32)}

    every: int = 16

    def allocate(self, shape: PoolShape) -> State:
        return (
            np.zeros(shape.keys, np.int64),
            np.zeros(shape.slots, np.int64),
            np.zeros(shape.slots, np.int64),
            np.zeros(1, np.int64),
            np.array([self.every]),
        )
