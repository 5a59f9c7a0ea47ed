"""SIEVE."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from flashmoe_sim.policies._queue import new_queues, put_newest, take_out
from flashmoe_sim.policies.base import EvictingPolicy, PoolShape, State, by_name


def on_hit(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    visited = state[1]
    visited[slot] = True


def on_install(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    link, visited, _ = state
    visited[slot] = False
    put_newest(link, slot, link.shape[1] - 1)


def choose_victim(state: Any, slot_key: Any, blocked: Any, mark: int) -> int:
    link, visited, hand = state
    end = link.shape[1] - 1
    slot = hand[0]
    for _ in range(3):  # the rest of this round, a round that may clear all bits, and one that finds the first cleared
        while slot != end:
            if blocked[slot] != mark:
                if not visited[slot]:
                    hand[0] = link[1, slot]
                    return np.int64(slot)  # type: ignore[return-value]
                visited[slot] = False
            slot = link[1, slot]
        slot = link[1, end]
    return -1


def on_evict(state: Any, slot: int, key: int) -> None:
    take_out(state[0], slot)


@dataclass(frozen=True)
class Sieve(EvictingPolicy):
    """Evict the first expert without a hit that a hand meets as it moves from old to new and clears hits.

    The queue is in the order of installs, and nothing moves in it. Each resident has a bit, which a hit sets. The hand
    starts at the oldest; on its way to newer experts it clears set bits, evicts the first expert whose bit is clear,
    and stops at the next newer one. After the newest it goes on with the oldest: once the newest is evicted, the hand
    starts at the oldest again, whatever is installed meanwhile. Residents that may not be evicted are skipped and keep
    their bits.
    """

    name: ClassVar[str] = "sieve"
    source: ClassVar[str] = "Zhang et al., NSDI 2024, Algorithm 1"
    kernels: ClassVar[dict[str, Any]] = by_name(on_hit, on_install, choose_victim, on_evict)

    def allocate(self, shape: PoolShape) -> State:
        return new_queues(shape.slots), np.zeros(shape.slots, np.bool_), np.array([shape.slots], np.uint32)
