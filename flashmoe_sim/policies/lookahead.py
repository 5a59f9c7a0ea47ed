"""The offline optimum for the near future, and LRU beyond it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from flashmoe_sim.parameters import INT32, Limits
from flashmoe_sim.policies.base import NEVER, EvictingPolicy, PoolShape, State, by_name


def on_call(state: Any, step: int) -> None:
    _, _, offset, step_of, seen, reach = state
    call = seen[0]
    while call < len(offset) - 1 and step_of[call] <= step + reach[0]:
        call += 1
    seen[0] = call


def on_use(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    next_use, idle = state[0], state[1]
    next_use[slot] = upcoming
    idle[slot] = NEVER - now


def choose_victim(state: Any, slot_key: Any, blocked: Any, mark: int) -> int:
    next_use, idle, offset, _, seen, _ = state
    horizon = np.int32(offset[seen[0]])
    furthest = np.int32(-1)
    for slot in range(len(slot_key)):
        value = next_use[slot] if next_use[slot] < horizon else idle[slot]
        furthest = max(furthest, value if slot_key[slot] >= 0 and blocked[slot] != mark else np.int32(-1))
    victim = -1
    for slot in range(len(slot_key)):
        value = next_use[slot] if next_use[slot] < horizon else idle[slot]
        victim = max(victim, slot if value == furthest and slot_key[slot] >= 0 else -1)
    return victim


@dataclass(frozen=True)
class Lookahead(EvictingPolicy):
    """Evict the least recently used expert without a use in the next 16 steps; if there is none, the furthest next use.

    With 0 steps it is LRU, with all steps of the trace it is min:forced. It shows the value of a predictor that is
    never wrong but sees only so far. Every miss is admitted. `lookahead-16` names `lookahead:steps=16`.

    steps: steps seen after the current one; with 0, not even the rest of the current step.
    """

    name: ClassVar[str] = "lookahead"
    ties: ClassVar[str] = "none possible; uses within one call count by reference"
    source: ClassVar[str] = "arXiv 2608.07911 (lookahead-W)"
    hindsight: ClassVar[bool] = True
    kernels: ClassVar[dict[str, Any]] = by_name(on_call, on_use, choose_victim)
    limits: ClassVar[Limits] = {"steps": (0, INT32)}

    steps: int = 16

    def allocate(self, shape: PoolShape) -> State:
        next_use, idle = np.full((2, shape.slots), NEVER, np.int32)
        seen, reach = np.zeros(1, np.int64), np.array([self.steps or -1])
        return next_use, idle, shape.offset, shape.step, seen, reach
