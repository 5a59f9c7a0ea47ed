"""A policy and a predictor as a user would write them, as the text of a module. The policy does what `lru` does."""

from __future__ import annotations

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
