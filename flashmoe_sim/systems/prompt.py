"""The prompt that a system reads in a comparison, and the uncertainty of its speed."""

from __future__ import annotations

from functools import lru_cache

from flashmoe_sim.machines.belief import Draws, Whose
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.timeline.assemble import Conditions, costs_of
from flashmoe_sim.timeline.interval import speed_draws
from flashmoe_sim.timeline.names import PARTS
from flashmoe_sim.timeline.run import total_seconds
from flashmoe_sim.timeline.timed import Timed
from flashmoe_sim.timeline.work import some_calls
from flashmoe_sim.trace.prompt import Prompted, with_prompt
from flashmoe_sim.trace.routing import PHASE_PROMPT


@lru_cache(maxsize=4)
def prompted(workload: Workload, tokens: int) -> tuple[Workload, Prompted]:
    """The workload with one prompt of `tokens` tokens before its decoded ones; see `trace.prompt.with_prompt`."""
    made = with_prompt(workload.trace, tokens)
    return prepare(made.trace, workload.geometry), made


def prompt_draws(
    timed: Timed, workload: Workload, setup: Setup, machine: Machine, conditions: Conditions, whose: Whose
) -> Draws:
    """Draws of the logarithm of the speed over timed.timing.prompt_tok_s, for this very prompt on this machine."""
    timing = timed.timing
    some = some_calls(timed.work, timed.work.phase == PHASE_PROMPT)

    def speed_on(other: Machine) -> float:
        return 1 / total_seconds(some, costs_of(workload, setup, other, conditions), conditions.execution)

    return speed_draws(speed_on, machine, timing.step_s[timing.phase == PHASE_PROMPT], whose=whose)


def prompt_parts(timed: Timed) -> dict[str, float]:
    """Seconds of the prompt by part."""
    seconds = timed.timeline.parts[timed.work.phase == PHASE_PROMPT].sum(axis=0)
    return dict(zip(PARTS, seconds.tolist(), strict=True))
