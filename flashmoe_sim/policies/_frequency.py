"""Policies that evict the expert with the fewest uses, and of these the one used longest ago: one compiled loop.

State: uses of each key, i64 [keys], and again of each slot; the last use of each slot, i64 [slots]; how often all uses
were halved, i64 [1]; and the rules, i64 [2], places below.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flashmoe_sim._jit import inlined
from flashmoe_sim.policies._scan import MOST, least
from flashmoe_sim.policies.base import PoolShape, State, by_name

RESTARTS, EVERY = range(2)  # uses count from the install; steps after which all are halved


def on_call(state: Any, step: int) -> None:
    uses, of_slot, _, halved, rules = state
    due = step // rules[EVERY] - halved[0]
    if due > 0:
        halved[0] += due
        by = min(due, 63)
        for key in range(len(uses)):
            uses[key] >>= by
        for slot in range(len(of_slot)):
            of_slot[slot] >>= by


def on_hit(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    state[0][key] += 1
    use(state, slot, key, now)


def on_install(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    uses, rules = state[0], state[4]
    uses[key] = 1 if rules[RESTARTS] else uses[key] + 1
    use(state, slot, key, now)


@inlined
def use(state: Any, slot: int, key: int, now: int) -> None:
    uses, of_slot, last, _, _ = state
    of_slot[slot] = uses[key]
    last[slot] = now


def choose_victim(state: Any, slot_key: Any, blocked: Any, mark: int) -> int:
    _, of_slot, last, _, _ = state
    return least(of_slot, last, slot_key, blocked, mark)  # type: ignore[no-any-return]


KERNELS = by_name(on_call, on_hit, on_install, choose_victim)


def frequencies(shape: PoolShape, *, restarts: bool = False, every: int = MOST) -> State:
    """The state at first."""
    of_slot, last = np.zeros((2, shape.slots), np.int64)
    rules = np.array([restarts, every], np.int64)
    return np.zeros(shape.keys, np.int64), of_slot, last, np.zeros(1, np.int64), rules
