"""How far ahead a policy would have to see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from flashmoe_sim.ceilings.gap import Gap, misses
from flashmoe_sim.ceilings.optimum import comparable_setup
from flashmoe_sim.ceilings.search import smallest
from flashmoe_sim.policies.table import parse_policy
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.residency.workload import Workload


@dataclass(frozen=True)
class Lookahead:
    """The lookahead that closes half the gap between a policy and min:forced.

    steps: min within that many steps of the model, LRU beyond them; 0 is LRU. misses: with that lookahead.
    contract: under which it was counted.

    It is found by doubling and then bisection. More lookahead is not always better, so fewer steps may do as well.
    """

    steps: int
    misses: int
    contract: str


def half_gap(
    workload: Workload, setup: Setup, gap: Gap, *, replayed: Callable[[], None] = lambda: None
) -> Lookahead | None:
    """The lookahead that closes half the gap; None if there is no gap, or it is unknown.

    replayed: called after each replay.
    """
    if gap.forced is None or gap.policy <= gap.forced:
        return None
    target = (gap.policy + gap.forced) / 2
    counted: dict[int, int] = {}

    def enough(steps: int) -> bool:
        counted[steps] = misses(workload, comparable_setup(setup, parse_policy(f"lookahead:steps={steps}")))
        replayed()
        return counted[steps] <= target

    steps = smallest(enough, len(np.unique(workload.trace.steps)))
    assert steps is not None, "a lookahead of the whole trace is min:forced"
    return Lookahead(steps, counted[steps], gap.optimum_contract)
