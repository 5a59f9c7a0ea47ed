"""Random eviction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from flashmoe_sim.parameters import Limits
from flashmoe_sim.policies._random import SEEDS, draw, new_generator
from flashmoe_sim.policies.base import EvictingPolicy, PoolShape, State, by_name


def on_hit(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    pass


def on_install(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    pass


def choose_victim(state: Any, slot_key: Any, blocked: Any, mark: int) -> int:
    generator = state[0]
    free = 0
    for slot in range(len(slot_key)):
        free += slot_key[slot] >= 0 and blocked[slot] != mark
    if free == 0:
        return -1
    drawn = draw(generator) % free
    for slot in range(len(slot_key)):
        if slot_key[slot] >= 0 and blocked[slot] != mark:
            if drawn == 0:
                return slot
            drawn -= 1
    return -1


@dataclass(frozen=True)
class Random(EvictingPolicy):
    """Evict a random resident.

    seed: seed of the draws; every pool starts from it.
    """

    name: ClassVar[str] = "random"
    ties: ClassVar[str] = "seeded draw"
    source: ClassVar[str] = "Belady 1966, §3"
    kernels: ClassVar[dict[str, Any]] = by_name(on_hit, on_install, choose_victim)
    limits: ClassVar[Limits] = {"seed": SEEDS}

    seed: int = 1

    def allocate(self, shape: PoolShape) -> State:
        return (new_generator(self.seed),)
