"""`sim policy judge`: policies against another one, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.options import MODEL, option, option_field
from flashmoe_sim.question import MACHINE, ConditionOptions, SeveralOptions

if TYPE_CHECKING:
    import polars

    from flashmoe_sim.machines.machine import OneMachine
    from flashmoe_sim.policies.base import OnePolicy
    from flashmoe_sim.residency.workload import Workload
    from flashmoe_sim.sweep.left_out import LeftOut
    from flashmoe_sim.sweep.versus import Versus
    from flashmoe_sim.verbs.given import Model, Trace


@dataclass(frozen=True, eq=False)
class PoliciesJudged:
    """A row for each trace, bank and policy, then the means over several traces.

    left_out: what has no row, and why. notes: of the traces and the machine. executions: how seconds were timed; empty
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
class JudgePolicies(SeveralOptions, ConditionOptions):
    """Compare policies with another one: differences in hits, or in speed on a machine, each with an interval.

    >>> table = judge_policies(["python-256", "prose-256"], bank=32, policy="lfu-decay,fifo", contract="atomic")
    >>> table.filter(polars.col("trace").is_null()).select("policy", "ahead", polars.col("more_hits").round(3)).rows()
    [('lfu-decay', 2, 0.045), ('fifo', 0, -0.025)]

    A row of docs/reference/columns.md for each trace, bank and policy; with several traces also rows without a trace,
    which are means. Intervals say how far more of the same text could move a difference, and `ahead` on how many traces
    it holds.
    Warns about banks that do not fit a trace.
    Raises BadInput for unknown words, for a bank that fits no trace, and if all steps of a trace are skipped.
    """

    traces: Trace | Iterable[Trace] = field(kw_only=False, metadata=option("TRACE...", "", positional=True))
    against: OnePolicy = option_field("lru", "P", "The policy to judge against.")
    skip_steps: int = option_field(
        0, "N", "Steps at the beginning of each trace that do not count: the warm-up.", least=0
    )
    confidence: float = option_field(0.95, "C", "Of the intervals, 0.5 to 0.999.", least=0.5, most=0.999)
    machine: OneMachine | None = field(default=None, metadata=MACHINE)
    model: Model | None = field(default=None, metadata=MODEL)

    def run(
        self,
        progress: Callable[[int, int], None] | None = None,
        read: Callable[[Trace, Model | None], Workload] | None = None,
    ) -> PoliciesJudged:
        """Replay every trace under every policy. read: how a trace is read."""
        from flashmoe_sim.sweep.plan import plan_setup, plan_sweep
        from flashmoe_sim.sweep.versus import versus
        from flashmoe_sim.sweep.workloads import by_hindsight, plan_workloads
        from flashmoe_sim.verbs.given import Trace, machine_of, workload_of

        left_out: list[LeftOut] = []
        setups, conditions = plan_sweep(self, left_out=left_out)
        base = {
            str(setup.bank): plan_setup(setup.bank, policy=self.against, contract=self.contract, scope=self.scope)
            for setup in setups
        }
        judged = [one for one in setups if one.policy != base[str(one.bank)].policy]
        if not judged:
            raise BadInput(f"--policy {self.policy}: is the policy to judge against; give another one")
        machine = None if self.machine is None else machine_of(self.machine)
        named = [self.traces] if isinstance(self.traces, Trace) else list(self.traces)
        workloads = plan_workloads([(read or workload_of)(trace, self.model) for trace in named], named)
        rows = versus(
            workloads,
            judged,
            base,
            machine=machine,
            conditions=conditions,
            skip_steps=self.skip_steps,
            left_out=left_out,
            progress=progress,
        )
        notes = [f"{one.trace.name}: {note}" for one in workloads for note in one.trace.notes]
        every = [*judged, *base.values()]
        timed = [] if machine is None else [conditions(one, workloads[0].geometry).execution.name for one in every]
        return PoliciesJudged(
            rows,
            left_out,
            (*notes, *(() if machine is None else machine.notes)),
            self.confidence,
            tuple(dict.fromkeys(timed)),
            tuple(by_hindsight(workloads, (one.policy for one in every))),
        )
