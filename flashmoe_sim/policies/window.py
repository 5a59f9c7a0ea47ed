"""LRU that spares experts used often in a sliding window."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from flashmoe_sim._jit import inlined
from flashmoe_sim.io.errors import OutOfRange
from flashmoe_sim.parameters import Limits
from flashmoe_sim.policies._queue import move_to_newest, new_queues
from flashmoe_sim.policies.base import EvictingPolicy, PoolShape, State, by_name
from flashmoe_sim.policies.lru import on_install

MOST_WINDOW = 1 << 24


@inlined
def _count(state: Any, key: int) -> None:
    """`key` was requested: it enters the window, and the oldest access leaves it."""
    _, recent, uses, place, _ = state
    leaving = recent[place[0]]
    if leaving >= 0:
        uses[leaving] -= 1
    recent[place[0]] = key
    uses[key] += 1
    place[0] += 1
    if place[0] == len(recent):
        place[0] = 0


def on_hit(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    _count(state, key)
    link = state[0]
    move_to_newest(link, slot, link.shape[1] - 1)


def on_miss(state: Any, key: int, now: int) -> None:
    _count(state, key)


def choose_victim(state: Any, slot_key: Any, blocked: Any, mark: int) -> int:
    link, _, uses, _, protected_from = state
    end = link.shape[1] - 1
    oldest = -1
    slot = link[1, end]
    while slot != end:
        if slot_key[slot] >= 0 and blocked[slot] != mark:
            if uses[slot_key[slot]] < protected_from[0]:
                return np.int64(slot)  # type: ignore[return-value]
            if oldest < 0:
                oldest = np.int64(slot)  # type: ignore[assignment]
        slot = link[1, slot]
    return oldest


@dataclass(frozen=True)
class Window(EvictingPolicy):
    """Evict the least recently used expert that has less than a tenth of the last 256 accesses.

    If all evictable experts have that share, it evicts the least recently used. Accesses are the requests of the pool,
    hits and misses; the share is of the whole window even while fewer accesses have been seen. This is DALI's policy as
    tinyserve implements it.

    window: number of accesses. share: an expert with this share of `window` is protected.
    """

    name: ClassVar[str] = "window"
    source: ClassVar[str] = "DALI, arXiv 2602.03495, as implemented in tinyserve"
    kernels: ClassVar[dict[str, Any]] = by_name(on_hit, on_miss, on_install, choose_victim)
    limits: ClassVar[Limits] = {"window": (1, MOST_WINDOW)}

    window: int = 256
    share: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.share <= 1:
            raise OutOfRange(f"policy window: share={self.share} is not above 0 and at most 1")

    def allocate(self, shape: PoolShape) -> State:
        return (
            new_queues(shape.slots),
            np.full(self.window, -1, np.int64),
            np.zeros(shape.keys, np.int64),
            np.zeros(1, np.int64),
            np.array([math.ceil(Fraction(str(self.share)) * self.window)]),
        )
