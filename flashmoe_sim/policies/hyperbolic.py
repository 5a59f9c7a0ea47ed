"""Hyperbolic caching."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from flashmoe_sim.policies._scan import least_ratio
from flashmoe_sim.policies.base import EvictingPolicy, PoolShape, State, by_name


def on_miss(state: Any, key: int, now: int) -> None:
    _, _, _, clock = state
    clock[0] = now


def on_hit(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    uses, _, last, clock = state
    uses[slot] += 1
    last[slot] = now
    clock[0] = now


def on_install(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    uses, installed, last, _ = state
    uses[slot] = 1
    installed[slot] = now
    last[slot] = now


def choose_victim(state: Any, slot_key: Any, blocked: Any, mark: int) -> int:
    uses, installed, last, clock = state
    return least_ratio(uses, installed, last, clock[0], slot_key, blocked, mark)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Hyperbolic(EvictingPolicy):
    """Evict the expert with the fewest uses per time since its install.

    Time is counted in requests of the pool; the request that installs an expert is its first use. The paper evicts the
    lowest of 64 residents drawn at random, since the order changes all the time; we compare all of them, exactly.
    """

    name: ClassVar[str] = "hyperbolic"
    ties: ClassVar[str] = "older last use"
    source: ClassVar[str] = "Blankstein, Sen, Freedman: Hyperbolic Caching, USENIX ATC 2017"
    most_uses: ClassVar[int | None] = 2**31 - 1
    kernels: ClassVar[dict[str, Any]] = by_name(on_miss, on_hit, on_install, choose_victim)

    def allocate(self, shape: PoolShape) -> State:
        uses, installed, last = np.zeros((3, shape.slots), np.int64)
        return uses, installed, last, np.zeros(1, np.int64)
