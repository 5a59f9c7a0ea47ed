"""Frequency over recency."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from flashmoe_sim.parameters import Choices
from flashmoe_sim.policies._scan import least_ratio
from flashmoe_sim.policies.base import EvictingPolicy, PoolShape, State, by_name


def on_miss(state: Any, key: int, now: int) -> None:
    _, _, _, clock, _ = state
    clock[0] = now


def on_hit(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    count, uses, last, clock, _ = state
    count[key] += 1
    uses[slot] = count[key]
    last[slot] = now
    clock[0] = now


def on_install(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    count, uses, last, _, restarts = state
    count[key] = 1 if restarts[0] else count[key] + 1
    uses[slot] = count[key]
    last[slot] = now


def choose_victim(state: Any, slot_key: Any, blocked: Any, mark: int) -> int:
    _, uses, last, clock, _ = state
    return least_ratio(uses, last, last, clock[0] + 1, slot_key, blocked, mark)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Lfru(EvictingPolicy):
    """Evict the expert with the smallest uses / (time since its last use + 1).

    Time is counted in requests of the pool, as tinyserve does; arXiv 2608.07911 counts it in routed calls.

    count: `keep` counts uses over the whole run, `restart` since the install.
    """

    name: ClassVar[str] = "lfru"
    ties: ClassVar[str] = "older last use"
    source: ClassVar[str] = "arXiv 2608.07911 (count kept); tinyserve (count restarts)"
    most_uses: ClassVar[int | None] = 2**31 - 1
    kernels: ClassVar[dict[str, Any]] = by_name(on_miss, on_hit, on_install, choose_victim)
    choices: ClassVar[Choices] = {"count": ("keep", "restart")}

    count: str = "keep"

    def allocate(self, shape: PoolShape) -> State:
        count = np.zeros(shape.keys, np.int64)
        uses, last = np.zeros((2, shape.slots), np.int64)
        return count, uses, last, np.zeros(1, np.int64), np.array([self.count == "restart"])
