"""The offline optimum.

State: for each slot the reference that uses its expert next, i32, -1 if empty. Experts never used again get values
beyond all references, the one used last the lowest, so that every value is unique. A pool may have up to 2^30
references.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from flashmoe_sim.policies.base import NEVER, EvictingPolicy, PoolShape, State, by_name

VECTOR = 32


def on_use(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    state[0][slot] = upcoming if upcoming != NEVER else NEVER - now


def choose_victim(state: Any, slot_key: Any, blocked: Any, mark: int) -> int:
    next_use = state[0]
    furthest = np.int32(-1)
    for slot in range(len(next_use)):
        furthest = max(furthest, next_use[slot])
    victim = -1
    for slot in range(len(next_use)):
        victim = max(victim, slot if next_use[slot] == furthest else -1)
    if furthest < 0 or blocked[victim] == mark:
        victim, furthest = -1, np.int32(-1)
        for slot in range(len(slot_key)):
            if next_use[slot] > furthest and blocked[slot] != mark:
                victim, furthest = slot, next_use[slot]
    return victim


def on_evict(state: Any, slot: int, key: int) -> None:
    state[0][slot] = -1


def declines(state: Any, slot: int, key: int, now: int, upcoming: int) -> bool:
    return (upcoming if upcoming != NEVER else NEVER - now) > state[0][slot]  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Min(EvictingPolicy):
    """Evict the furthest next use; do not admit an expert whose next use is later still (Belady, bypass)."""

    name: ClassVar[str] = "min"
    contracts: ClassVar[tuple[str, ...]] = ("atomic", "sequential")
    ties: ClassVar[str] = "of those never used again the oldest last use; within one call the later reference"
    source: ClassVar[str] = "Belady 1966; arXiv 2608.07911 (event form, bypass and forced)"
    hindsight: ClassVar[bool] = True
    textbook: ClassVar[str] = "min"
    kernels: ClassVar[dict[str, Any]] = by_name(on_use, choose_victim, on_evict, declines)
    bypass: ClassVar[bool] = True

    def allocate(self, shape: PoolShape) -> State:
        whole_vectors = -(-shape.slots // VECTOR) * VECTOR
        return (np.full(whole_vectors, -1, np.int32),)


@dataclass(frozen=True)
class MinForced(Min):
    """Evict the furthest next use, but admit every miss first (Belady, forced)."""

    name: ClassVar[str] = "min:forced"
    contracts: ClassVar[tuple[str, ...]] = ("runtime", "protected", "atomic", "sequential")
    bypass: ClassVar[bool] = False
