"""Policies and predictors as a user would write them, as the text of a module. The policies do what `lru` does."""

from __future__ import annotations

from typing import Any

GAP = '''
from dataclasses import dataclass
import numpy as np
from flashmoe_sim.policies.base import EvictingPolicy, PinningPolicy, ScheduledPolicy
from flashmoe_sim.prefetchers.hot import Hot


def on_use(state, slot, key, now, upcoming):
    state[0][slot] = now


def choose_victim(state, slot_key, blocked, mark):
    victim = -1
    for slot in range(len(slot_key)):
        if slot_key[slot] >= 0 and blocked[slot] != mark and (victim < 0 or state[0][slot] < state[0][victim]):
            victim = slot
    return victim


@dataclass(frozen=True)
class Gap(EvictingPolicy):
    """Evict the oldest."""

    name = "gap"
    source = "tests"
    kernels = {"on_hit": on_use, "on_install": on_use, "choose_victim": choose_victim}
    width: int = 1

    def allocate(self, shape):
        return (np.zeros(shape.slots, np.int64),)


class Guess(Hot):
    """Guess."""

    name = "guess"
'''
# As a cell of a notebook, with globals that another run may change.
CELL = '''
import numpy as np
from numba import njit
from flashmoe_sim.policies.base import EvictingPolicy
from flashmoe_sim.prefetchers.base import Prefetcher
from flashmoe_sim.prefetchers.hot import Hot

SIGN = 1

@njit
def better(a, b):
    return SIGN * a < SIGN * b

def used(state, slot, key, now, upcoming):
    state[0][slot] = now

def victim(state, slot_key, blocked, mark):
    chosen = -1
    for slot in range(len(slot_key)):
        if slot_key[slot] >= 0 and blocked[slot] != mark:
            if chosen < 0 or better(state[0][slot], state[0][chosen]):
                chosen = slot
    return chosen

class Mine(EvictingPolicy):
    """A policy."""
    name = "mine"
    kernels = {"on_hit": used, "on_install": used, "choose_victim": victim}
    def allocate(self, shape):
        return (np.full(shape.slots, START, np.int64),)

START = 0

class Guess(Hot):
    name = "guess"
    def predict(self, trace):
        return super().predict(trace)
'''


def cell(code: str = CELL, module: str = "__main__") -> dict[str, Any]:
    """The names that the text leaves."""
    space: dict[str, Any] = {"__name__": module}
    exec(code, space)
    return space
