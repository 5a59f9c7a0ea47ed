"""`sim recommend`: what to run on a machine, with which flags, and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from flashmoe_sim.io.errors import Conflict, Incomplete, OutOfRange
from flashmoe_sim.io.notes import CUT_OFF, code_of
from flashmoe_sim.options import MEASURED, MODEL, MemoryOptions, Several, option, option_field
from flashmoe_sim.verbs.base import Progress

if TYPE_CHECKING:
    from flashmoe_sim.geometry.model import ModelGeometry
    from flashmoe_sim.machines.machine import OneMachine
    from flashmoe_sim.systems.resolve import OneSystem
    from flashmoe_sim.tune.many import Cells
    from flashmoe_sim.tune.objective import Objective
    from flashmoe_sim.tune.recommend import Recommendation
    from flashmoe_sim.verbs.given import Model, Trace


@dataclass(frozen=True, kw_only=True)
class Recommend(MemoryOptions):
    """Recommend an engine and its settings for a model on a machine, like `sim recommend`.

        found = sim.recommend("gpt-oss-120b", machine="rtx-4090")
        print(found.best.best.launch.line)

    Without a trace, one is made for `model`, like bundled ones of other models, with a warning. Systems may be
    objects, and so may the objective. `buy` adds `.bought`.
    Raises BadInput for unknown words, and if nothing can run.
    """

    trace: Trace | None = field(default=None, kw_only=False, metadata=option("[TRACE]", "", positional=True))
    model: Model | None = field(default=None, metadata=MODEL)
    machine: OneMachine = field(
        metadata=option(
            "X", "This machine: a name from `sim machine list`, a file, or parts; several with commas, or all."
        )
    )
    also: Iterable[Trace] = option_field(
        (), "TRACE", "Traces of other work with the same model, to check that the choice holds there."
    )
    systems: OneSystem | Iterable[OneSystem] = option_field(
        "all",
        "S,S",
        "Choose among these systems, with settings: slot-bank:top_k=4; see `sim system list`.",
        flag="--system",
    )
    measured: Several = field(default=(), metadata=MEASURED)
    objective: str | Objective | None = option_field(
        "decode",
        "",
        "What to make fast: generating, reading a prompt, or a prompt and its answer.",
        choices=("decode", "prompt", "both"),
    )
    prompt_tokens: int | None = option_field(None, "P", "Tokens of the prompt, for --objective.", least=1)
    answer_tokens: int = option_field(500, "N", "Tokens of the answer, for --objective both.", least=1)
    buy: bool = option_field(False, "", "Show what better parts would gain; give --machine as parts.")
    target: float | None = option_field(None, "TOK/S", "With --buy: a speed to reach.", above=0)
    prices: str | Path | None = option_field(
        None, "FILE", "With --buy: only parts in this table, part,price; the cheapest first."
    )
    budget: float | None = option_field(
        None, "N", "With --buy: the most to spend; without --prices, at prices of cards at launch.", above=0
    )

    def __post_init__(self) -> None:
        if self.target is not None and not self.buy:
            raise Incomplete("--target is the speed that --buy must reach; add --buy (in Python, buy=True)")
        if self.prices is not None and not self.buy:
            raise Incomplete("--prices is for --buy; add it (in Python, buy=True)")
        if self.budget is not None and not self.buy:
            raise Incomplete("--budget is for --buy; add it (in Python, buy=True)")

    def run(self, progress: Progress | None = None) -> Recommendation:
        """Recommend for a trace, or for a model alone with a borrowed trace."""
        from flashmoe_sim.systems.resolve import resolve
        from flashmoe_sim.tune.prices import launch_prices, read_prices
        from flashmoe_sim.tune.recommend import Purchase, recommend
        from flashmoe_sim.tune.shop import parts_of
        from flashmoe_sim.verbs.given import learnt_machine, names_no_quantization, workload_and_model, workload_of

        workload, model = workload_and_model(self.trace, self.model)
        runs_on = learnt_machine(self.machine, self.measured, workload=workload, model=model)
        goal = self._goal()
        memory = replace(self, context=self._context(goal, workload.geometry if workload is not None else model))
        on = resolve(
            workload=workload,
            model=model,
            machine=runs_on,
            systems=self.systems,
            memory=memory,
            any_file=names_no_quantization(self.trace, self.model),
        )
        assert on.workload is not None
        prices = None
        if self.prices is not None:
            prices = read_prices(Path(self.prices), self.budget)
        elif self.budget is not None:
            prices = launch_prices(self.budget)
        found = recommend(
            on.workload,
            on.case,
            on.systems,
            objective=goal,
            borrowed=bool(on.borrowed),
            others=[workload_of(other, self.model if model is None else model) for other in self.also],
            purchase=Purchase(parts_of(runs_on.name), self.target, prices) if self.buy else None,
            progress=progress,
        )
        cut_off = [f"{on.case.model.name}: {note}" for note in on.case.model.notes if code_of(note) == CUT_OFF]
        return replace(found, notes=(*on.notes, *cut_off))

    def run_each(self, machines: Sequence[str], models: Sequence[str], progress: Progress | None = None) -> Cells:
        """The fastest system for one model on each of the machines, or for each of the models on one machine.

        Raises BadInput for several models on several machines, and for unknown words.
        """
        from flashmoe_sim.geometry.load import load_model
        from flashmoe_sim.machines.load import load_machine
        from flashmoe_sim.systems.fits import file_that_fits
        from flashmoe_sim.systems.resolve import parse_systems, resolve
        from flashmoe_sim.tune.many import over_machines, over_models
        from flashmoe_sim.verbs.given import names_no_quantization, workload_of

        if self.measured:
            raise Conflict("--measured: speeds are of one machine and one model; give one of each")
        if len(models) > 1 and len(machines) > 1:
            raise Conflict("several models on several machines; give one model, or one machine")
        workload = None if self.trace is None else workload_of(self.trace)
        on_machines, of_models = [load_machine(name) for name in machines], [load_model(name) for name in models]
        if len(models) > 1:
            on = [
                resolve(
                    workload=None,
                    model=model,
                    machine=on_machines[0],
                    systems=self.systems,
                    memory=self,
                    may_borrow=False,
                    any_file=names_no_quantization(None, name),
                )
                for name, model in zip(models, of_models, strict=True)
            ]
            return over_models([one.case for one in on], on[0].systems, progress=progress)
        of_model = next(iter(of_models), None)
        chosen = parse_systems(self.systems)
        if of_model is not None and names_no_quantization(None, models[0]):
            of_model = file_that_fits(of_model, on_machines, chosen)
        first = resolve(
            workload=workload,
            model=of_model,
            machine=on_machines[0],
            systems=chosen,
            memory=self,
            must_fit=False,
        )
        assert first.workload is not None
        return over_machines(
            first.workload, first.case, first.systems, on_machines, borrowed=bool(first.borrowed), progress=progress
        )

    def _goal(self) -> Objective:
        from flashmoe_sim.tune.objective import Objective

        if isinstance(self.objective, Objective):
            return self.objective
        return Objective(
            goal=self.objective or "decode",
            prompt_tokens=self.prompt_tokens or 0,
            answer_tokens=self.answer_tokens,
        )

    def _context(self, goal: Objective, model: ModelGeometry | None) -> int | None:
        """The context: as given, or else what depth, prompt and answer need if that is more than the default."""
        from flashmoe_sim.systems.resolve import DEFAULT_CONTEXT

        before = (self.depth or 0) if goal.tokens else 0
        needed = before + goal.tokens
        if self.context and self.context < needed:
            what = "depth, prompt and answer" if before else "prompt and answer"
            raise OutOfRange(f"--context {self.context}: {what} have {needed:,} tokens; give at least as many")
        if self.context is not None or self.kv is not None or model is None or model.attention is None:
            return self.context
        return needed if needed > DEFAULT_CONTEXT else None
