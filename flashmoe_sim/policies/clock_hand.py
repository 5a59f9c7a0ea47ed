"""Second chance with a hand that goes round fixed places."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from flashmoe_sim.policies.base import EvictingPolicy, PoolShape, State, by_name


def on_use(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    state[1][slot] = True


def choose_victim(state: Any, slot_key: Any, blocked: Any, mark: int) -> int:
    hand, used = state
    begin = hand[0]
    for _ in range(2 * len(slot_key)):
        slot = hand[0] if hand[0] < len(slot_key) else 0
        hand[0] = slot + 1
        if slot_key[slot] < 0 or blocked[slot] == mark:
            continue
        if not used[slot]:
            return np.int64(slot)  # type: ignore[return-value]
        used[slot] = False
    hand[0] = begin
    return -1


@dataclass(frozen=True)
class ClockHand(EvictingPolicy):
    """Evict the first expert that a hand finds unused since it last came by.

    Every slot has a bit, which a hit and an install set. To evict, the hand goes from slot to slot: it clears the bits
    that are set and stops behind the first that is clear. It passes slots that may not be evicted and leaves their
    bits. `clock` differs: there a new expert enters with its bit clear, and those that may not be evicted stay next.
    """

    name: ClassVar[str] = "clock-hand"
    source: ClassVar[str] = "Corbató 1968; as in carloslfu/slotstream 0c5fece08: ExpertStore.swift (SlotPool)"
    kernels: ClassVar[dict[str, Any]] = by_name(on_use, choose_victim)

    def allocate(self, shape: PoolShape) -> State:
        return np.zeros(1, np.int64), np.zeros(shape.slots, np.bool_)
