"""Least recently used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from flashmoe_sim.policies._queue import move_to_newest, new_queues, oldest
from flashmoe_sim.policies.base import EvictingPolicy, PoolShape, State, by_name


def on_hit(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    link = state[0]
    move_to_newest(link, slot, link.shape[1] - 1)


def on_install(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    link = state[0]
    move_to_newest(link, slot, link.shape[1] - 1)


def choose_victim(state: Any, slot_key: Any, blocked: Any, mark: int) -> int:
    link = state[0]
    return oldest(link, link.shape[1] - 1, slot_key, blocked, mark)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Lru(EvictingPolicy):
    """Evict the least recently used expert."""

    name: ClassVar[str] = "lru"
    source: ClassVar[str] = "Mattson et al. 1970; the patched llama.cpp runtime's slot bank"
    textbook: ClassVar[str] = "lru"
    kernels: ClassVar[dict[str, Any]] = by_name(on_hit, on_install, choose_victim)

    def allocate(self, shape: PoolShape) -> State:
        return (new_queues(shape.slots),)
