"""The rule of warp's cache and of its script: of some resident experts drawn at random the least used one goes.

Source: sqliteai/warp, src/ecache.c (16 draws with replacement by a linear congruence, counts from the install on) and
tools/routing_stats.py as of July 2026 (32 different ones, counts kept over evictions). Ties: the older last use.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from flashmoe_sim.policies.base import EvictingPolicy, PoolShape, State

FACTOR, STEP = 1664525, 1013904223


def on_install(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    uses, last, settings = state
    uses[key] = uses[key] + 1 if settings[1] else 0
    last[key] = now


def on_hit(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    uses, last, _ = state
    uses[key] += 1
    last[key] = now


def choose_victim(state: Any, slot_key: Any, blocked: Any, mark: int) -> int:
    uses, last, settings = state
    victim = -1
    for _ in range(settings[0]):
        settings[2] = (settings[2] * FACTOR + STEP) % 2**32
        slot = settings[2] % settings[3]
        if slot_key[slot] < 0 or blocked[slot] == mark:
            continue
        key, best = slot_key[slot], slot_key[victim] if victim >= 0 else -1
        if victim < 0 or uses[key] < uses[best] or (uses[key] == uses[best] and last[key] < last[best]):
            victim = slot
    if victim < 0:
        for slot in range(len(slot_key)):
            if slot_key[slot] >= 0 and blocked[slot] != mark:
                return slot
    return victim


@dataclass(frozen=True)
class SampledLfu(EvictingPolicy):
    """Evict the least used of some residents that are drawn at random.

    draws: how many. keep: whether uses count over the whole run, or from the install on.
    """

    name: ClassVar[str] = "sampled-lfu"
    ties: ClassVar[str] = "older last use"
    kernels: ClassVar[dict[str, Any]] = {"on_hit": on_hit, "on_install": on_install, "choose_victim": choose_victim}

    draws: int = 16
    keep: bool = False
    seed: int = 1

    def allocate(self, shape: PoolShape) -> State:
        settings = np.array([self.draws, self.keep, self.seed, shape.capacity], np.int64)
        return np.zeros(shape.keys, np.int64), np.zeros(shape.keys, np.int64), settings
