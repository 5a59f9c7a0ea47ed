"""`sim policy judge`: policies and predictors against a policy, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from flashmoe_sim.io.errors import Conflict
from flashmoe_sim.io.sections import UNKNOWN, Column, Section, Table, percent, signed, speed, table
from flashmoe_sim.options import MODEL, option, option_field
from flashmoe_sim.question import MACHINES, ConditionOptions, SeveralOptions
from flashmoe_sim.verbs.base import DrawnVerb, Progress

if TYPE_CHECKING:
    import polars

    from flashmoe_sim.machines.machine import OneMachine
    from flashmoe_sim.policies.base import OnePolicy
    from flashmoe_sim.prefetchers.base import OnePredictor
    from flashmoe_sim.report.figures.style import Chart
    from flashmoe_sim.sweep.left_out import LeftOut
    from flashmoe_sim.sweep.versus import Versus
    from flashmoe_sim.verbs.given import Model, Read, Trace

LEAST_P = 0.001


@dataclass(frozen=True, eq=False)
class PoliciesJudged:
    """A row for each trace, bank, policy and machine, then the means over several traces.

    left_out: what has no row, and why. notes: of the traces and the machines. executions: how seconds were timed; empty
    without a machine. warnings: which policies learnt from what they are judged on.
    """

    rows: list[Versus]
    left_out: list[LeftOut]
    notes: tuple[str, ...]
    confidence: float
    executions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def table(self) -> polars.DataFrame:
        """schema.JUDGED."""
        from flashmoe_sim.schema import JUDGED, frame

        return frame([row.as_row(self.confidence) for row in self.rows], JUDGED)


@dataclass(frozen=True, kw_only=True)
class JudgePolicies(SeveralOptions, ConditionOptions, DrawnVerb[PoliciesJudged]):
    """Compare policies, or predictors beside them, with a policy: differences in hits, or in speed on a machine.

    >>> table = judge_policies(["python-256", "prose-256"], bank=32, policy="lfu-decay,fifo", contract="atomic")
    >>> table.filter(polars.col("trace").is_null()).select("policy", "ahead", polars.col("more_hits").round(3)).rows()
    [('lfu-decay', 2, 0.045), ('fifo', 0, -0.025)]

    A row of docs/reference/columns.md for each trace, bank, policy and machine; with several traces also rows without a
    trace, which are means. With `prefetch` each policy is judged with each predictor, against the policy without one.
    Intervals say how far more of the same text could move a difference, and `ahead` on how many traces it holds.
    Warns about banks that do not fit a trace.
    Raises BadInput for unknown words, for a bank that fits no trace, and if all steps of a trace are skipped.
    """

    reads: ClassVar[bool] = True
    help: ClassVar[
        str
    ] = """Compare policies with another one: differences in hits, or in speed on a machine, each with an interval.

    With --prefetch it compares predictors: each policy with each of them, against --against without one.

    TRACE is a file, or a name from `sim trace catalog`. Of several traces the means are printed; --json and --out have
    each.

    \b
    Examples:  sim policy judge my.jsonl --bank 16,32 --policy lfu-decay,mine:Gap
               sim policy judge gpt-oss-120b --bank 16 --policy all \\
                 --machine rtx-3090,rtx-4090 --execution hot-cold
               sim policy judge python-256 prose-256 --bank 16 \\
                 --prefetch markov,mine:Guess
    """

    traces: Trace | Iterable[Trace] = field(kw_only=False, metadata=option("TRACE...", "", positional=True))
    prefetch: OnePredictor | Iterable[OnePredictor] = option_field(
        "none", "F,F", "Predictors beside each policy; see `sim prefetch list`."
    )
    against: OnePolicy = option_field("lru", "P", "The policy to judge against.")
    skip_steps: int = option_field(
        0, "N", "Steps at the beginning of each trace that do not count: the warm-up.", least=0
    )
    confidence: float = option_field(0.95, "C", "Of the intervals, 0.5 to 0.999.", least=0.5, most=0.999)
    machine: OneMachine | Iterable[OneMachine] | None = field(default=None, metadata=MACHINES)
    model: Model | None = field(default=None, metadata=MODEL)

    def run(self, progress: Progress | None = None, read: Read | None = None) -> PoliciesJudged:
        """Replay every trace under every policy. read: how a trace is read."""
        from flashmoe_sim.sweep.plan import plan_setup, plan_sweep
        from flashmoe_sim.sweep.versus import versus
        from flashmoe_sim.sweep.workloads import by_hindsight, plan_workloads
        from flashmoe_sim.verbs.given import Trace, machines_of, workload_of

        left_out: list[LeftOut] = []
        setups, conditions = plan_sweep(self, left_out=left_out)
        base = {
            str(setup.bank): plan_setup(setup.bank, policy=self.against, contract=self.contract, scope=self.scope)
            for setup in setups
        }
        judged = [
            one
            for one in setups
            if (one.policy, one.prefetch) != (base[str(one.bank)].policy, base[str(one.bank)].prefetch)
        ]
        if not judged:
            raise Conflict(f"--policy {self.policy}: is the policy to judge against; give another one, or --prefetch")
        machines = machines_of(self.machine)
        named = [self.traces] if isinstance(self.traces, Trace) else list(self.traces)
        workloads = plan_workloads([(read or workload_of)(trace, self.model) for trace in named], named)
        rows = versus(
            workloads,
            judged,
            base,
            machines=machines,
            conditions=conditions,
            skip_steps=self.skip_steps,
            left_out=left_out,
            progress=progress,
        )
        notes = [f"{one.trace.name}: {note}" for one in workloads for note in one.trace.notes]
        every = [*judged, *base.values()]
        timed = [conditions(one, workloads[0].geometry).execution.name for one in every] if machines else []
        return PoliciesJudged(
            rows,
            left_out,
            (*notes, *(note for machine in machines for note in machine.notes)),
            self.confidence,
            tuple(dict.fromkeys(timed)),
            tuple(by_hindsight(workloads, (one.policy for one in every))),
        )

    def document(self, found: PoliciesJudged) -> dict[str, Any]:
        """What `--json` prints."""
        warnings, rows = [*found.notes, *self.notes(found)], found.table().to_dicts()
        return {"confidence": self.confidence, "skip_steps": self.skip_steps, "warnings": warnings, "rows": rows}

    def sections(self, found: PoliciesJudged) -> list[Section]:
        """The rows of the one trace, or the means over several, on each machine."""
        rows = found.table().to_dicts()
        means = [row for row in rows if row["trace"] is None]
        traces = "; ".join(dict.fromkeys(row["trace"] for row in rows if row["trace"] is not None))
        by_machine = dict[str | None, list[dict[str, Any]]]()
        for row in means or rows:
            by_machine.setdefault(row["machine"], []).append(row)
        several = len(by_machine) > 1
        tables = []
        for name, of in by_machine.items():
            on = name if several else self.machine
            tables.append(_judged(of, self, found.executions, traces, on, comparisons=len(means or rows)))
        return [Section("", tuple(tables))]

    def chart(self, found: PoliciesJudged) -> Chart:
        """Each policy's differences, with their intervals."""
        from flashmoe_sim.report.figures import judged

        return judged(found.table())

    def notes(self, found: PoliciesJudged) -> list[str]:
        """What is left out, and which policies know too much."""
        from flashmoe_sim.sweep.left_out import reasons

        return [*reasons(found.left_out), *found.warnings]


def _judged(
    shown: Sequence[dict[str, Any]],
    question: JudgePolicies,
    executions: Sequence[str],
    traces: str,
    machine: object,
    *,
    comparisons: int,
) -> Table:
    """A table of one trace, or of the means over several, on one machine. comparisons: of all tables together."""
    from flashmoe_sim.sweep.summary import line_text

    means, timed = shown[0]["trace"] is None, shown[0]["gain"] is not None
    columns: list[Column] = [
        ("bank", "right", lambda row: row["bank"]),
        ("policy", "left", lambda row: line_text(row) + "*" * (row["contract"] != question.contract)),
        ("hit %", "right", lambda row: percent(row["hit_rate"])),
        *difference_columns(question.confidence, timed=timed),
    ]
    if means:
        name = "faster" if timed else "ahead"
        columns.append((name, "right", lambda row: f"{row[name]} of {row['traces']}"))
    columns.append(("p", "right", lambda row: _p(row["p"])))
    against = shown[0]["against"]
    timed_as = f", {' and '.join(executions)}" if executions else ""
    caption = f"contract {question.contract}{timed_as}; more: points of hit rate above {against} in the same bank"
    if others := dict.fromkeys(row["contract"] for row in shown if row["contract"] != question.contract):
        caption += f"; *: under {' and '.join(others)}"
    if timed:
        caption += f"; gain: how many times as fast as {against}"
    if means:
        caption += f"; means over the traces; {'faster' if timed else 'ahead'}: on how many of them it is"
    if question.skip_steps:
        caption += f"; without the first {question.skip_steps:,} steps"
    caption += "; p: chance of such a difference if there is none"
    if comparisons > 1:
        caption += f", corrected for {comparisons} comparisons"
    banks = dict.fromkeys(row["bank"] for row in shown)
    if alike := [bank for bank in banks if not any(row["more_hits"] for row in shown if row["bank"] == bank)]:
        caption += f"; no difference in a bank of {', '.join(alike)}: one that holds a single call leaves no choice"
    on = f" on {machine}" if timed else ""
    return table(columns, shown, title=f"{traces}: against {against}{on}", caption=caption)


def difference_columns(confidence: float, *, timed: bool) -> list[Column]:
    """How far a policy is ahead: in hits, and in speed if it is timed, with the interval of the last of them."""
    level = f"{100 * confidence:g}%"
    more: Column = ("more", "right", lambda row: _points(row["more_hits"]))
    if not timed:
        return [more, (level, "right", lambda row: _ends(row, "more_hits", _points))]
    return [
        more,
        ("tok/s", "right", lambda row: speed(row["tok_s"])),
        ("gain", "right", lambda row: _times(row["gain"])),
        (level, "right", lambda row: _ends(row, "gain", _times)),
    ]


def _p(p: float | None) -> str:
    if p is None:
        return UNKNOWN
    return "<0.001" if p < LEAST_P else f"{p:.3f}"


def _times(gain: float) -> str:
    return f"{gain:.3f}"


def _ends(row: dict[str, Any], name: str, shown: Callable[[float], str]) -> str:
    lo, hi = row[f"{name}_lo"], row[f"{name}_hi"]
    return UNKNOWN if lo is None or hi is None else f"{shown(lo)} to {shown(hi)}"


def _points(share: float) -> str:
    return signed(100 * share)
