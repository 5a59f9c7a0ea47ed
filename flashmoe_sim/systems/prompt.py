"""The prompt that a system reads in a comparison, and the uncertainty of its speed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from flashmoe_sim.machines.belief import Draws, Whose, error_draws
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.residency.workload import Setup, Workload, prepare
from flashmoe_sim.timeline.assemble import Conditions, attention_of, costs_of, weights_of
from flashmoe_sim.timeline.from_replay import Timed
from flashmoe_sim.timeline.names import PARTS
from flashmoe_sim.timeline.run import total_seconds
from flashmoe_sim.timeline.timing import speed_draws
from flashmoe_sim.timeline.work import some_calls, tokens_of
from flashmoe_sim.trace.made_prompt import Prompted, with_prompt
from flashmoe_sim.trace.routing import PHASE_PROMPT

PLACES = 8  # in a prompt, at which attention is priced


@lru_cache(maxsize=4)
def prompted(workload: Workload, tokens: int) -> tuple[Workload, Prompted]:
    """The workload with one prompt of `tokens` tokens before its decoded ones; see `trace.made_prompt.with_prompt`."""
    made = with_prompt(workload.trace, tokens)
    return prepare(made.trace, workload.geometry), made


def own_attention_s(
    workload: Workload, machine: Machine, conditions: Conditions, *, tokens: int, batch: float
) -> float:
    """Seconds that a token of a prompt attends to the prompt's own earlier tokens, in the mean; 0 if not known.

    tokens: of the prompt. batch: tokens that are computed together, and read keys and values once.
    """
    weights, unit = weights_of(workload, conditions), machine.gpu or machine.cpu
    if weights.attention is None or unit is None or unit.attention_gb_s is None:
        return 0.0

    def token_s(depth: int) -> float:
        cost = attention_of(weights, machine, replace(conditions, depth=depth))
        return max(cost.read_s / batch, cost.token_s)

    places = [conditions.depth + round((place + 0.5) / PLACES * tokens) for place in range(PLACES)]
    return sum(map(token_s, places)) / PLACES - token_s(conditions.depth)


def prompt_draws(
    timed: Timed,
    workload: Workload,
    setup: Setup,
    machine: Machine,
    conditions: Conditions,
    whose: Whose,
    *,
    more_s: Callable[[Machine], float],
) -> Draws:
    """Draws of the logarithm of a prompt's speed over its prediction, for this very prompt on this machine.

    more_s: what a token of the prompt takes on a machine and the timeline does not have, in seconds.
    """
    timing = timed.timing
    some = some_calls(timed.work, timed.work.phase == PHASE_PROMPT)

    def speed_on(other: Machine) -> float:
        seconds = total_seconds(some, costs_of(workload, setup, other, conditions), conditions.execution)
        return 1 / (seconds + tokens_of(some) * more_s(other))

    machine_draws = speed_draws(speed_on, machine, timing.step_s[timing.phase == PHASE_PROMPT], whose=None)
    return machine_draws + error_draws(machine, whose, prompt=True)


def prompt_parts(timed: Timed) -> dict[str, float]:
    """Seconds of the prompt by part."""
    seconds = timed.timeline.parts[timed.work.phase == PHASE_PROMPT].sum(axis=0)
    return dict(zip(PARTS, seconds.tolist(), strict=True))


def prompt_batch(timed: Timed) -> float:
    """Tokens of the prompt that are computed together, in the mean."""
    prompt = timed.timing.phase == PHASE_PROMPT
    return float(timed.timing.tokens[prompt].mean())
