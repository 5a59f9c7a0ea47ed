"""Policies whose score is the uses of an expert over a time, so that the order changes all the time: one compiled loop.

State: uses of each key, i64 [keys], and again of each slot; since when a slot's time is counted, and its last use, i64
[slots]; the clock, i64 [1]; and the rules, i64 [3], places below.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flashmoe_sim._jit import inlined
from flashmoe_sim.policies._scan import least_ratio
from flashmoe_sim.policies.base import PoolShape, State, by_name

RESTARTS, FROM_LAST, ADDED = range(3)  # uses count from the install; time from the last use; what is added to the time


def on_miss(state: Any, key: int, now: int) -> None:
    state[4][0] = now


def on_hit(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    count, _, since, _, clock, rules = state
    count[key] += 1
    use(state, slot, key, now)
    if rules[FROM_LAST]:
        since[slot] = now
    clock[0] = now


def on_install(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    count, _, since, _, _, rules = state
    count[key] = 1 if rules[RESTARTS] else count[key] + 1
    use(state, slot, key, now)
    since[slot] = now


@inlined
def use(state: Any, slot: int, key: int, now: int) -> None:
    count, uses, _, last, _, _ = state
    uses[slot] = count[key]
    last[slot] = now


def choose_victim(state: Any, slot_key: Any, blocked: Any, mark: int) -> int:
    _, uses, since, last, clock, rules = state
    return least_ratio(uses, since, last, clock[0] + rules[ADDED], slot_key, blocked, mark)  # type: ignore[no-any-return]


KERNELS = by_name(on_miss, on_hit, on_install, choose_victim)


def ratios(shape: PoolShape, *, restarts: bool, from_last: bool, added: int) -> State:
    """The state at first."""
    uses, since, last = np.zeros((3, shape.slots), np.int64)
    rules = np.array([restarts, from_last, added], np.int64)
    return np.zeros(shape.keys, np.int64), uses, since, last, np.zeros(1, np.int64), rules
