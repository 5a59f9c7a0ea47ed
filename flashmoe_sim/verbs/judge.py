"""`sim prefetch judge`: what predictors cost and save in a bank."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flashmoe_sim.options import MODEL, option, option_field
from flashmoe_sim.question import MACHINE, SCOPE, BankOptions, ConditionOptions

if TYPE_CHECKING:
    from flashmoe_sim.ceilings.ahead_value import AheadValue, BreakEven
    from flashmoe_sim.machines.machine import OneMachine
    from flashmoe_sim.prefetchers.base import OnePredictor
    from flashmoe_sim.verbs.given import Model, Trace


@dataclass(frozen=True)
class Judgement:
    """What each predictor costs and saves, `none` first, and how accurate any must be to pay off."""

    values: list[AheadValue]
    needed: BreakEven


@dataclass(frozen=True, kw_only=True)
class Judge(BankOptions, ConditionOptions):
    """Judge predictors by the reads they cost and the stalls they save, and on a machine by the speed.

    Raises BadInput for unknown words, and for a bank that does not fit the trace or the machine.
    """

    trace: Trace = field(kw_only=False, metadata=option("TRACE", "", positional=True))
    predictors: OnePredictor | Iterable[OnePredictor] = option_field(
        "all", "F,F", "Predictors; see `sim prefetch list`.", flag="--prefetch"
    )
    contract: str = option_field("protected", "C", "Replay contract: runtime, protected or atomic.")
    scope: str = field(default="layer", metadata=SCOPE)
    price: float = option_field(0.5, "X", "Cost of a prefetch, as a share of a read that stalls.")
    machine: OneMachine | None = field(default=None, metadata=MACHINE)
    model: Model | None = field(default=None, metadata=MODEL)

    def run(self, progress: Callable[[int, int], None] | None = None) -> Judgement:
        """Replay the trace with every predictor, and with synthetic ones of every accuracy."""
        from flashmoe_sim.ceilings.ahead_value import ahead_values, break_even
        from flashmoe_sim.prefetchers.none import NoPrefetch
        from flashmoe_sim.sweep.plan import plan_predictors
        from flashmoe_sim.verbs.given import task_of

        named = plan_predictors(self.predictors)
        task, chosen = task_of(self), [NoPrefetch(), *(one for one in named if not isinstance(one, NoPrefetch))]
        values = ahead_values(
            task.workload, task.setup, chosen, machine=task.machine, conditions=task.conditions, progress=progress
        )
        return Judgement(values, break_even(task.workload, task.setup, price=self.price, progress=progress))
