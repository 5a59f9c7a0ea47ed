"""A policy of your own that sees the gate weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from flashmoe_sim.policies.base import EvictingPolicy, PoolShape, State


def on_use(state: Any, slot: int, key: int, now: int, upcoming: int, weight: float) -> None:
    state[0][slot], state[1][slot] = weight, now


def choose_victim(state: Any, slot_key: Any, blocked: Any, mark: int) -> int:
    weight, last = state
    victim = -1
    for slot in range(len(slot_key)):
        if slot_key[slot] < 0 or blocked[slot] == mark:
            continue
        if victim < 0 or (weight[slot], last[slot]) < (weight[victim], last[victim]):
            victim = slot
    return victim


@dataclass(frozen=True)
class LeastWeight(EvictingPolicy):
    """Evict the lowest gate weight at the last use."""

    name: ClassVar[str] = "least-weight"
    ties: ClassVar[str] = "older last use"
    sees: ClassVar[tuple[str, ...]] = ("weight",)
    kernels: ClassVar[dict[str, Any]] = {"on_hit": on_use, "on_install": on_use, "choose_victim": choose_victim}

    def allocate(self, shape: PoolShape) -> State:
        return np.zeros(shape.slots, np.float32), np.zeros(shape.slots, np.int64)
