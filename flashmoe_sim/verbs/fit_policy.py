"""`sim policy fit`: parameters of a policy, fitted on some text and judged on other text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from flashmoe_sim.io.sections import Column, Section, Table, percent, speed, table
from flashmoe_sim.options import MODEL, option, option_field
from flashmoe_sim.question import CONTRACT, MACHINE, SCOPE, SIZES, ConditionOptions
from flashmoe_sim.verbs.base import Progress, Verb
from flashmoe_sim.verbs.judge_policies import difference_columns

if TYPE_CHECKING:
    import polars

    from flashmoe_sim.machines.machine import OneMachine
    from flashmoe_sim.policies.bank import OneBank
    from flashmoe_sim.policies.base import OnePolicy
    from flashmoe_sim.sweep.fit_policy import FittedPolicy
    from flashmoe_sim.sweep.left_out import LeftOut
    from flashmoe_sim.verbs.given import Model, Read, Trace


@dataclass(frozen=True, eq=False)
class PolicyFitted:
    """A row for each trace and bank.

    left_out: traces that a bank does not fit. tried: number of candidates. warnings: which learnt from what they
    are judged on.
    """

    rows: list[FittedPolicy]
    left_out: list[LeftOut]
    tried: int
    confidence: float
    warnings: tuple[str, ...] = ()

    def table(self) -> polars.DataFrame:
        """schema.FITTED."""
        from flashmoe_sim.schema import FITTED, frame

        return frame([row.as_row(self.confidence) for row in self.rows], FITTED)


@dataclass(frozen=True, kw_only=True)
class FitPolicy(ConditionOptions, Verb[PolicyFitted]):
    """Fit parameters of a policy on some text and judge them on other text.

    >>> table = fit_policy("python-256", bank=32, policy="lfu-decay", values=["half_life=4,64"], contract="atomic")
    >>> table.select("fitted_on", "policy", "best_policy").row(0)
    ('its first half', 'lfu-decay:half_life=64', 'lfu-decay:half_life=64')

    With several traces each is judged with the parameters that hit most on the others, on average; a single one is
    fitted on its first half and judged on the second. With a machine the fastest are taken. Warns about traces that a
    bank does not fit.
    Raises BadInput for unknown words and parameters, and for a bank that fits no trace.
    """

    reads: ClassVar[bool] = True
    writes: ClassVar[bool] = True
    help: ClassVar[str] = """Fit parameters of a policy on some text, and judge them on other text.

    TRACE is a file, or a name from `sim trace catalog`. Of several traces, each is judged with the parameters that hit
    most on the others; a single one is fitted on its first half and judged on the second. With --machine the fastest
    parameters are taken, not those that hit most.

    \b
    Examples:  sim policy fit my.jsonl --bank 32 --policy lfu-decay \\
                 --values half_life=4,16,64
               sim policy fit python-256 prose-256 --bank 12.5% \\
                 --policy mine:Gap --values gap=1,2,4
    """

    traces: Trace | Iterable[Trace] = field(kw_only=False, metadata=option("TRACE...", "", positional=True))
    bank: OneBank | Iterable[OneBank] = field(metadata=SIZES)
    policy: OnePolicy = field(metadata=option("P", "The policy, or mine:Gap; it is what the fit is compared with."))
    values: str | Iterable[str] = option_field(
        (),
        "NAME=V,V",
        "Values of a parameter to try, such as half_life=4,16,64; given again, every combination of both.",
    )
    contract: str = field(default="protected", metadata=CONTRACT)
    scope: str = field(default="layer", metadata=SCOPE)
    confidence: float = option_field(0.95, "C", "Of the intervals, 0.5 to 0.999.", least=0.5, most=0.999)
    machine: OneMachine | None = field(default=None, metadata=MACHINE)
    model: Model | None = field(default=None, metadata=MODEL)

    @property
    def varied(self) -> list[str]:
        """What is tried of each parameter."""
        return [self.values] if isinstance(self.values, str) else list(self.values)

    def run(self, progress: Progress | None = None, read: Read | None = None) -> PolicyFitted:
        """Replay every trace with every candidate. read: how a trace is read."""
        from flashmoe_sim.sweep.fit_policy import candidates, fit
        from flashmoe_sim.sweep.plan import conditions_of, plan_policy, plan_setups
        from flashmoe_sim.sweep.workloads import by_hindsight, plan_workloads
        from flashmoe_sim.verbs.given import Trace, machine_of, workload_of

        rule = plan_policy(self.policy)
        tried = candidates(rule, self.varied)
        defaults = plan_setups(self.bank, policy=rule, contract=self.contract, scope=self.scope)
        conditions = conditions_of(self, *defaults[:1])
        machine = None if self.machine is None else machine_of(self.machine)
        named = [self.traces] if isinstance(self.traces, Trace) else list(self.traces)
        workloads = plan_workloads([(read or workload_of)(trace, self.model) for trace in named], named)
        left_out: list[LeftOut] = []
        rows: list[FittedPolicy] = []
        for number, default in enumerate(defaults):

            def over_banks(done: int, total: int, number: int = number) -> None:
                if progress is not None:
                    progress(number * total + done, len(defaults) * total)

            setups = [replace(default, policy=one) for one in tried]
            rows += fit(
                workloads,
                setups,
                default,
                machine=machine,
                conditions=conditions,
                left_out=left_out,
                progress=over_banks,
            )
        return PolicyFitted(rows, left_out, len(tried), self.confidence, tuple(by_hindsight(workloads, tried)))

    def document(self, found: PolicyFitted) -> dict[str, Any]:
        """What `--json` prints."""
        asked_for = {"confidence": self.confidence, "candidates": found.tried}
        return {**asked_for, "warnings": self.notes(found), "rows": found.table().to_dicts()}

    def sections(self, found: PolicyFitted) -> list[Section]:
        """A row for each trace and bank."""
        return [Section("", (_fitted(found.table().to_dicts(), self, found.tried),))]

    def notes(self, found: PolicyFitted) -> list[str]:
        """What is left out, and which candidates know too much."""
        from flashmoe_sim.sweep.left_out import reasons

        return [*reasons(found.left_out), *found.warnings]


def _fitted(rows: Sequence[dict[str, Any]], question: FitPolicy, tried: int) -> Table:
    from flashmoe_sim.sweep.fit_policy import ITS_FIRST_HALF

    default = rows[0]["against"]
    timed = rows[0]["gain"] is not None
    columns: list[Column] = [
        ("bank", "right", lambda row: row["bank"]),
        ("judged on", "left", lambda row: row["trace"]),
        ("fitted", "left", lambda row: _changed(row["policy"], default)),
        ("hit %", "right", lambda row: percent(row["hit_rate"])),
        *difference_columns(question.confidence, timed=timed),
    ]
    columns.append(("hindsight", "left", lambda row: _changed(row["best_policy"], default)))
    if timed:
        columns.append(("its tok/s", "right", lambda row: speed(row["hindsight_tok_s"])))
    else:
        columns.append(("its hit %", "right", lambda row: percent(row["hindsight_hit_rate"])))
    on = "the other traces" if rows[0]["fitted_on"] != ITS_FIRST_HALF else "the trace's first half, judged on the rest"
    ahead = sum(row["gain"] > 1 if timed else row["more_hits"] > 0 for row in rows)
    gain = f"; gain: how many times as fast as {default}" if timed else ""
    caption = (
        f"contract {question.contract}; fitted: the best of {tried:,} candidates on {on}; more: points of hit rate "
        f"above {default}{gain}; {'faster' if timed else 'more hits'} in {ahead} of {len(rows)} rows; "
        "hindsight: the best on the very text it is judged on"
    )
    title = f"{default}: {'; '.join(question.varied)}"
    return table(columns, rows, title=title, caption=caption, dispensable=("its hit %", "its tok/s", "hindsight"))


def _changed(spec: str, default: str) -> str:
    """The parameters of a policy; `as is` for the policy in the table's title."""
    return "as is" if spec == default else spec.partition(":")[2] or spec
