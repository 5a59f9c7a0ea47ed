"""Least recently used by the K-th last use.

State: the last K uses of each key, newest first, 0 if there are fewer, and its last use of any kind; for each slot the
rank of its key, by the K-th last use and then the last; and the time and parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from flashmoe_sim._jit import inlined
from flashmoe_sim.parameters import INT32, Choices, Limits
from flashmoe_sim.policies._rank import EMPTY, HIGH, LOW, least_ranked, new_ranks
from flashmoe_sim.policies.base import EvictingPolicy, PoolShape, State, by_name

MOST_USES = 64
TIME, CORRELATED, RESTARTS = range(3)


def on_hit(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    uses, last, rank, setting = state
    setting[TIME] = now
    if now - last[key] > setting[CORRELATED]:
        add_use(uses, key, now, last[key] - uses[key, 0])
    stamp(uses, last, rank, slot, key, now)


def on_miss(state: Any, key: int, now: int) -> None:
    setting = state[3]
    setting[TIME] = now


def on_install(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    uses, last, rank, setting = state
    if setting[RESTARTS]:
        uses[key] = 0
    add_use(uses, key, now, 0)
    stamp(uses, last, rank, slot, key, now)


def choose_victim(state: Any, slot_key: Any, blocked: Any, mark: int) -> int:
    _, _, rank, setting = state
    victim, least = -1, EMPTY
    if setting[CORRELATED] > 0:
        for slot in range(len(slot_key)):
            apart = setting[TIME] - (rank[slot] & LOW) > setting[CORRELATED]
            if apart and rank[slot] < least and blocked[slot] != mark:
                victim, least = slot, rank[slot]
    if victim < 0:
        victim = least_ranked(rank, slot_key, blocked, mark)
    return victim


def on_evict(state: Any, slot: int, key: int) -> None:
    rank = state[2]
    rank[slot] = EMPTY


@inlined
def add_use(uses: Any, key: int, now: int, span: int) -> None:
    """Record a use. span: the duration of the last use, which does not count as time between uses."""
    for place in range(uses.shape[1] - 1, 0, -1):
        use = uses[key, place - 1]
        uses[key, place] = use + span if use > 0 else 0
    uses[key, 0] = now


@inlined
def stamp(uses: Any, last: Any, rank: Any, slot: int, key: int, now: int) -> None:
    last[key] = now
    rank[slot] = (uses[key, uses.shape[1] - 1] << HIGH) + now


@dataclass(frozen=True)
class LruK(EvictingPolicy):
    """Evict the expert whose K-th last use is oldest; experts with fewer than K uses go first.

    k: which of the last uses decides; 1 is LRU.
    correlated: a hit within this many uses after the expert's last use belongs to that use. The time between them does
        not count as time between uses, and experts used that recently are evicted last.
    history: `keep` remembers every expert's uses for the whole run, `restart` only since the install. The paper forgets
        them after a while.
    """

    name: ClassVar[str] = "lru-k"
    ties: ClassVar[str] = "among experts used less than K times the older last use"
    source: ClassVar[str] = "O'Neil, O'Neil and Weikum 1993 (SIGMOD), Figure 2.1"
    most_uses: ClassVar[int | None] = LOW
    kernels: ClassVar[dict[str, Any]] = by_name(on_hit, on_miss, on_install, choose_victim, on_evict)
    limits: ClassVar[Limits] = {"k": (1, MOST_USES), "correlated": (0, INT32)}
    choices: ClassVar[Choices] = {"history": ("keep", "restart")}

    k: int = 2
    correlated: int = 0
    history: str = "keep"

    def allocate(self, shape: PoolShape) -> State:
        return (
            np.zeros((shape.keys, self.k), np.int64),
            np.zeros(shape.keys, np.int64),
            new_ranks(shape.slots),
            np.array([0, self.correlated, self.history == "restart"], np.int64),
        )
