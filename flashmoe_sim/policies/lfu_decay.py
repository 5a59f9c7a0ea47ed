"""Least frequently used, with old uses counting less.

State: the score of each key, and again of each slot, as a sum of 2^(step/half_life) over the steps of its uses. All
scores decay alike, so that their order needs no decay. The sums are in units of 2^n, where n half lives have passed:
all are halved after each, which is exact, and nothing overflows however long the trace is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from flashmoe_sim.parameters import INT32, Limits
from flashmoe_sim.policies._scan import least
from flashmoe_sim.policies.base import EvictingPolicy, PoolShape, State, by_name


def on_call(state: Any, step: int) -> None:
    score, of_slot, _, _, growth, half_lives, worth = state
    passed = step // len(growth) - half_lives[0]
    if passed:
        half_lives[0] += passed
        unit = math.ldexp(1.0, -passed)
        for key in range(len(score)):
            score[key] *= unit
        for slot in range(len(of_slot)):
            of_slot[slot] *= unit
    worth[0] = growth[step % len(growth)]


def on_use(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    score, of_slot, _, last, _, _, worth = state
    score[key] += worth[0]
    of_slot[slot] = score[key]
    last[slot] = now


def choose_victim(state: Any, slot_key: Any, blocked: Any, mark: int) -> int:
    _, _, rank, last, _, _, _ = state
    return least(rank, last, slot_key, blocked, mark)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class LfuDecay(EvictingPolicy):
    """Evict the lowest score: a use adds 1, and every half life halves the score.

    A use multiplies the score by 2^(-d/half_life), where d is the steps since the last use, and adds 1. Scores decay up
    to the moment they are compared. They survive eviction.

    half_life: half life in steps. An expert that is not used for 1074 half lives scores 0, as if it was never used.
    """

    name: ClassVar[str] = "lfu-decay"
    ties: ClassVar[str] = "older last use"
    source: ClassVar[str] = "arXiv 2608.07911 (decayed frequency, half life 16 tokens)"
    kernels: ClassVar[dict[str, Any]] = by_name(on_call, on_use, choose_victim)
    limits: ClassVar[Limits] = {"half_life": (1, INT32)}

    half_life: int = 16

    def allocate(self, shape: PoolShape) -> State:
        steps = min(self.half_life, int(shape.step[-1]))
        of_slot = np.zeros(shape.slots)
        return (
            np.zeros(shape.keys),
            of_slot,
            of_slot.view(np.int64),  # scores are not negative, so their bits are in the same order
            np.zeros(shape.slots, np.int64),
            np.array([2.0 ** (step / self.half_life) for step in range(max(steps, 1))]),
            np.zeros(1, np.int64),
            np.ones(1),  # there can be predictions before the first step
        )
