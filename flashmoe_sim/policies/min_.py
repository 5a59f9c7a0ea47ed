"""The offline optimum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from flashmoe_sim.policies.base import EvictingPolicy, State


def on_use(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    state[0][slot] = (np.int64(upcoming) << 32) - now


def choose_victim(state: Any, slot_key: Any, blocked: Any, mark: int) -> int:
    order = state[0]
    n = len(slot_key)
    furthest = np.int64(-1)
    for slot in range(n):
        furthest = max(furthest, order[slot])
    victim = -1
    for slot in range(n):
        victim = max(victim, slot if order[slot] == furthest else -1)
    if furthest < 0 or blocked[victim] == mark:
        victim, furthest = -1, np.int64(-1)
        for slot in range(n):
            if order[slot] > furthest and blocked[slot] != mark:
                victim, furthest = slot, order[slot]
    if victim >= 0:
        order[victim] = -1
    return victim


@dataclass(frozen=True)
class Min(EvictingPolicy):
    """Evict what is used furthest in the future; decline to admit what is used later still (Belady, bypass)."""

    name: ClassVar[str] = "min"
    contracts: ClassVar[tuple[str, ...]] = ("atomic", "sequential")
    ties: ClassVar[str] = "older last use, so a miss is admitted"
    source: ClassVar[str] = "Belady 1966; arXiv 2608.07911 (event form, bypass and forced)"
    hindsight: ClassVar[bool] = True
    kernels: ClassVar[dict[str, Any]] = {"on_hit": on_use, "on_install": on_use, "choose_victim": choose_victim}
    bypass: ClassVar[bool] = True

    def allocate(self, *, slots: int, keys: int) -> State:
        return (np.full(slots, -1, np.int64),)


@dataclass(frozen=True)
class MinForced(Min):
    """Evict what is used furthest in the future, but admit every miss first (Belady, forced)."""

    name: ClassVar[str] = "min:forced"
    contracts: ClassVar[tuple[str, ...]] = ("runtime", "protected", "atomic", "sequential")
    bypass: ClassVar[bool] = False
