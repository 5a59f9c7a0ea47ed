"""What a replay loop keeps for a pool from call to call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.policies.base import State

# Places in `carry`: uses counted, slots ever opened, slots freed since, and the weight of the contents; the number
# and the weight of the experts that were there before the first call.
CARRIED = NOW, OPENED, N_FREE, USED, N_LOADED, LOADED = 0, 1, 2, 3, 4, 5


class Held(NamedTuple):
    """The bank of one pool, as the replay loops read and write it.

    slot_key: i32 [slots], key_slot: i32 [keys]: -1 if empty.
    fresh: i64 [slots], for an expert read ahead and not used yet its place among the predictions plus 1; else 0.
    free: i32 [slots], freed slots in the order in which they were freed. carry: i64 [len(CARRIED)].
    """

    slot_key: NDArray[np.int32]
    key_slot: NDArray[np.int32]
    fresh: NDArray[np.int64]
    free: NDArray[np.int32]
    carry: NDArray[np.int64]


class Scratch(NamedTuple):
    """Arrays that a replay loop works with, zeros: blocked i64 [slots], evicted i32 [slots], the others i64 [keys]."""

    blocked: NDArray[np.int64]
    evicted: NDArray[np.int32]
    seen: NDArray[np.int64]
    missed: NDArray[np.int64]
    sorted_seen: NDArray[np.int64]
    visit: NDArray[np.int64]


class Rules(NamedTuple):
    """What a contract and a policy tell a replay loop, each read by the loops that it concerns.

    protect: whether residents that a call requests are reserved. bypass: whether a miss may be declined. stamp: the
        order of the visits, a place in policies.base.STAMPS.
    reads_minor: whether a miss of a minor expert is read and installed; one that is not counts as bypassed.
    room: what the contents may weigh in total, in the unit of `size`. size: i64 [keys], what a key weighs: 1 for a bank
        of slots, bytes for a bank of bytes.
    """

    protect: bool
    bypass: bool
    stamp: int
    reads_minor: bool
    room: int
    size: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PoolState:
    """The bank of one pool and its policy's own arrays; the loops change all arrays in place."""

    bank: Held
    policy: State

    @classmethod
    def empty(cls, slots: int, keys: int, policy: State) -> PoolState:
        """An empty bank of `slots` places."""
        bank = Held(
            np.full(slots, -1, np.int32),
            np.full(keys, -1, np.int32),
            np.zeros(slots, np.int64),
            np.zeros(slots, np.int32),
            np.zeros(len(CARRIED), np.int64),
        )
        return cls(bank, policy)

    def scratch(self) -> Scratch:
        """What a replay loop works with."""
        slots, keys = len(self.bank.slot_key), len(self.bank.key_slot)
        seen, missed, sorted_seen, visit = (np.zeros(keys, np.int64) for _ in range(4))
        return Scratch(np.zeros(slots, np.int64), np.zeros(slots, np.int32), seen, missed, sorted_seen, visit)

    @property
    def held(self) -> NDArray[np.int32]:
        """The resident keys, i32, ascending."""
        return np.sort(self.bank.slot_key[self.bank.slot_key >= 0])
