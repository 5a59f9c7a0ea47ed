"""`sim prefetch judge`: what predictors cost and save in a bank."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from flashmoe_sim.geometry.families import ranges
from flashmoe_sim.io.sections import Column, Section, Table, count, decimals, interval, percent, speed, table
from flashmoe_sim.io.sizes import size
from flashmoe_sim.options import MODEL, option, option_field
from flashmoe_sim.question import MACHINE, SCOPE, BankOptions, ConditionOptions, bank_text
from flashmoe_sim.verbs.base import Progress, Verb

if TYPE_CHECKING:
    from flashmoe_sim.ceilings.ahead_value import AheadValue, BreakEven
    from flashmoe_sim.machines.machine import OneMachine
    from flashmoe_sim.prefetchers.base import OnePredictor
    from flashmoe_sim.sweep.task import Task
    from flashmoe_sim.verbs.given import Model, Trace


@dataclass(frozen=True)
class Judgement:
    """What each predictor costs and saves in a task, `none` first, and how accurate any must be to pay off."""

    task: Task
    values: list[AheadValue]
    needed: BreakEven


@dataclass(frozen=True, kw_only=True)
class Judge(BankOptions, ConditionOptions, Verb[Judgement]):
    """Judge predictors by the reads they cost and the stalls they save, and on a machine by the speed.

    Raises BadInput for unknown words, and for a bank that does not fit the trace or the machine.
    """

    reads: ClassVar[bool] = True
    help: ClassVar[str] = """Judge predictors by the reads they cost and the stalls they save, not by accuracy.

    TRACE is a file, or a name from `sim trace catalog`. The last table shows how accurate any predictor must be to pay
    off. With --machine, the first also has the speed, which each predictor's own cost_us slows.

    \b
    Examples:  sim prefetch judge python-256 --bank 16
               sim prefetch judge gpt-oss-120b --bank 32 --machine rtx-4090 \\
               --prefetch markov,markov:cost_us=50
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

    def run(self, progress: Progress | None = None) -> Judgement:
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
        return Judgement(task, values, break_even(task.workload, task.setup, price=self.price, progress=progress))

    def document(self, found: Judgement) -> dict[str, Any]:
        """What `--json` prints."""
        from flashmoe_sim.ceilings.ahead_value import RECALLS

        needed = found.needed
        return {
            "identity": found.task.identity(),
            "predictors": [asdict(value) | {"worth": value.worth} for value in found.values],
            "break_even": {
                "price": needed.price,
                "recalls": RECALLS,
                "extras": [
                    {"extra": extra, "worth": [value.worth for value in row], "needed_recall": recall}
                    for extra, row, recall in zip(needed.extras, needed.grid, needed.needed, strict=True)
                ],
            },
        }

    def notes(self, found: Judgement) -> list[str]:
        """Where nothing can be gained: an execution that waits for reads ahead, and drafts that there are not."""
        from flashmoe_sim.sweep.plan import plan_predictors

        notes, on = [], found.task.conditions
        if on is not None and on.execution.reads_ahead and not on.execution.in_background:
            notes.append(
                f"under {on.execution.name} calls wait for reads ahead as for misses, so no predictor makes it faster; "
                "--execution overlap-prefetch reads while the model computes"
            )
        drafted = any(getattr(one, "drafted", False) for one in plan_predictors(self.predictors))
        if drafted and found.task.workload.trace.n_text is None:
            notes.append(
                "no pass verifies drafts, so drafted=True predicts nothing; give --draft, or `sim trace speculate`"
            )
        return notes

    def sections(self, found: Judgement) -> list[Section]:
        """A row for each predictor, and how accurate any must be."""
        return [Section("", (_values(found.task, found.values), _break_even(found.needed)))]


def _values(task: Task, values: list[AheadValue]) -> Table:
    columns: list[Column] = [
        ("predictor", "left", lambda one: one.prefetch + "*" * one.hindsight),
        ("recall", "right", lambda one: percent(one.recall)),
        ("prec.", "right", lambda one: percent(one.precision)),
        ("ahead/tok", "right", lambda one: f"{one.read_ahead / one.tokens:.1f}" if one.tokens else "-"),
        ("useful", "right", lambda one: percent(one.useful / one.read_ahead if one.read_ahead else None)),
        ("late", "right", lambda one: percent(one.late / one.useful if one.useful else None)),
        ("misses", "right", lambda one: count(one.misses)),
        ("saved", "right", lambda one: count(one.saved)),
        ("read/tok", "right", _read_per_token),
        ("worth", "right", lambda one: decimals(one.worth)),
    ]
    setup, on = task.setup, ""
    if task.machine is not None and task.conditions is not None:
        on = f"; {task.conditions.execution.name} on {task.machine.name}"
        columns += [
            ("tok/s", "right", lambda one: speed(one.tok_s)),
            ("90% interval", "right", lambda one: interval(one.tok_s_lo, one.tok_s_hi)),
        ]
    waits = any(one.late_layers for one in values)
    if waits:
        columns.append(("waits in layers", "right", lambda one: ranges(one.late_layers or ()) or "-"))
    title = f"{task.workload.trace.name}: {setup.policy.spec}, {bank_text(setup)}, contract {setup.contract}{on}"
    caption = (
        "recall, prec., useful and late in %; what is prefetched but not useful is wasted; late: useful, but asked for "
        "by the very next call; read/tok: demand reads and prefetches; worth: misses saved per expert prefetched"
    )
    if any(one.hindsight for one in values):
        caption += "; *: knows the future"
    if waits:
        caption += "; waits in layers: where most calls that use what was read ahead wait for it"
    dispensable = (
        "late",
        "useful",
        "saved",
        "prec.",
        *(("read/tok", "ahead/tok", "misses", "waits in layers", "recall") if on else ()),
    )
    return table(columns, values, title=title, caption=caption, dispensable=dispensable)


def _read_per_token(one: AheadValue) -> str:
    return size(None if one.bytes_read is None or not one.tokens else one.bytes_read / one.tokens)


def _break_even(needed: BreakEven) -> Table:
    from flashmoe_sim.ceilings.ahead_value import RECALLS

    columns = [("wrong per call", "right"), *((f"recall {recall:.0%}", "right") for recall in RECALLS)]
    columns.append((f"worth {needed.price:g} from", "right"))
    cells = [
        (
            str(extra),
            *(decimals(value.worth) for value in row),
            "never" if recall is None else f"{recall:.0%}",
        )
        for extra, row, recall in zip(needed.extras, needed.grid, needed.needed, strict=True)
    ]
    caption = (
        "worth of a predictor that names each expert of the next step with this chance, and this many wrong ones "
        f"for each call; last: the least recall that pays if a prefetch costs {needed.price:g} of a read that stalls"
    )
    spare = ("recall 25%", "recall 75%")
    return Table(columns, cells, title="How right must a predictor be?", caption=caption, dispensable=spare)
