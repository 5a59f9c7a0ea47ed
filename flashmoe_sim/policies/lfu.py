"""Least frequently used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from flashmoe_sim.parameters import Choices
from flashmoe_sim.policies.base import EvictingPolicy, PoolShape, State, by_name


def on_hit(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    count, last, _ = state
    count[key] += 1
    last[key] = now


def on_install(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    count, last, restarts = state
    count[key] = 1 if restarts[0] else count[key] + 1
    last[key] = now


def choose_victim(state: Any, slot_key: Any, blocked: Any, mark: int) -> int:
    count, last, _ = state
    victim, worst = -1, -1
    for slot in range(len(slot_key)):
        key = slot_key[slot]
        if key < 0 or blocked[slot] == mark:
            continue
        if victim >= 0:
            if count[key] > count[worst]:
                continue
            if count[key] == count[worst] and (last[key], key) > (last[worst], worst):
                continue
        victim, worst = slot, key
    return victim


@dataclass(frozen=True)
class Lfu(EvictingPolicy):
    """Evict the least frequently used expert.

    count: `keep` counts uses over the whole run, `restart` since the install.
    """

    name: ClassVar[str] = "lfu"
    ties: ClassVar[str] = "older last use, then lower expert number"
    source: ClassVar[str] = "arXiv 2608.07911 (count kept); tinyserve (count restarts)"
    kernels: ClassVar[dict[str, Any]] = by_name(on_hit, on_install, choose_victim)
    choices: ClassVar[Choices] = {"count": ("keep", "restart")}

    count: str = "keep"

    def allocate(self, shape: PoolShape) -> State:
        return np.zeros(shape.keys, np.int64), np.zeros(shape.keys, np.int64), np.array([self.count == "restart"])
