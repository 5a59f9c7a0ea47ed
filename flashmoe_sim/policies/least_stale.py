"""Least-Stale: experts that the current step has not used are evicted first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from flashmoe_sim.parameters import Choices
from flashmoe_sim.policies.base import EvictingPolicy, PoolShape, State, by_name

MOST = np.iinfo(np.int64).max
FRESH = 1 << 40


def on_call(state: Any, step: int) -> None:
    _, _, current, _ = state
    current[0] = step


def on_hit(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    order, touched, current, by_install = state
    touched[slot] = current[0]
    if not by_install[0]:
        order[slot] = now


def on_install(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    order, touched, current, _ = state
    touched[slot] = current[0]
    order[slot] = now


def choose_victim(state: Any, slot_key: Any, blocked: Any, mark: int) -> int:
    order, touched, current, _ = state
    first = MOST
    for slot in range(len(slot_key)):
        rank = order[slot] + (FRESH if touched[slot] == current[0] else 0)
        first = min(first, rank if slot_key[slot] >= 0 and blocked[slot] != mark else MOST)
    victim = -1
    for slot in range(len(slot_key)):
        rank = order[slot] + (FRESH if touched[slot] == current[0] else 0)
        victim = max(victim, slot if rank == first and slot_key[slot] >= 0 else -1)
    return victim


@dataclass(frozen=True)
class LeastStale(EvictingPolicy):
    """Evict experts that the current step has not used before the others, the least recently used first.

    There are at least five conflicting definitions: two queues (tinyserve), stale before fresh by last use
    (the artefact of arXiv 2608.07911), by layer and expert number (rbitnet), by a smoothed interval of reuse, and by
    the last layer used. This is the second. Since experts used in the current step were also used last, it is LRU under
    another name, in every bank and under every contract.

    variant: `lru`, as above, or `fifo`: two queues, stale and fresh, in order of install. The queues of tinyserve are
        in order of entry, which for whole calls is again the order of last use. In a bank per layer that protects the
        experts of the call, `fifo` is FIFO.
    """

    name: ClassVar[str] = "least-stale"
    source: ClassVar[str] = "SpecMD, arXiv 2602.03921, as defined in the artefact of arXiv 2608.07911"
    kernels: ClassVar[dict[str, Any]] = by_name(on_call, on_hit, on_install, choose_victim)
    choices: ClassVar[Choices] = {"variant": ("lru", "fifo")}

    variant: str = "lru"

    def allocate(self, shape: PoolShape) -> State:
        order, touched = np.zeros((2, shape.slots), np.int64)
        return order, touched, np.zeros(1, np.int64), np.array([self.variant == "fifo"])
