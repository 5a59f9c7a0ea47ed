"""Least frequently used, with all counts halved again and again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from flashmoe_sim.parameters import INT32, Limits
from flashmoe_sim.policies._frequency import KERNELS, frequencies
from flashmoe_sim.policies.base import EvictingPolicy, PoolShape, State


@dataclass(frozen=True)
class LfuHalved(EvictingPolicy):
    """Evict the expert with the fewest uses; from time to time all counts are halved and rounded down.

    Counts survive eviction, and a use counts whether it hits or misses.

    every: steps after which the counts are halved.
    """

    name: ClassVar[str] = "lfu-halved"
    ties: ClassVar[str] = "older last use"
    source: ClassVar[str] = "antirez/ds4 80ebbc3: ds4_metal.m:8678-8776, 9666-9830 (route hotness, 16 tokens)"
    kernels: ClassVar[dict[str, Any]] = KERNELS
    limits: ClassVar[Limits] = {"every": (1, INT32)}

    every: int = 16

    def allocate(self, shape: PoolShape) -> State:
        return frequencies(shape, every=self.every)
