"""`sim curve`: the hits at every bank size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flashmoe_sim.options import MODEL, option, option_field
from flashmoe_sim.question import IO_SPLIT

if TYPE_CHECKING:
    import polars

    from flashmoe_sim.policies.base import OnePolicy, Policy
    from flashmoe_sim.residency.counts import Counts
    from flashmoe_sim.residency.sample import SampledCurve
    from flashmoe_sim.residency.workload import Workload
    from flashmoe_sim.verbs.given import Model, Trace


@dataclass(frozen=True, eq=False)
class ExactCurve:
    """The counts of every number of slots per layer."""

    workload: Workload
    policy: Policy
    contract: str
    io_split: int
    counts: dict[int, Counts]

    def table(self) -> polars.DataFrame:
        """A row of docs/reference/columns.md for each size."""
        from flashmoe_sim.policies.bank import Bank
        from flashmoe_sim.residency.setup import Setup
        from flashmoe_sim.schema import frame
        from flashmoe_sim.sweep.row import result_row
        from flashmoe_sim.sweep.task import Task

        rows = []
        for slots, counts in self.counts.items():
            setup = Setup(Bank(slots=slots), self.policy, self.contract, io_split=self.io_split)
            rows.append(result_row(Task(self.workload, setup), counts, best=None))
        return frame(rows)


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Count every bank size exactly in one pass over the trace: a row for each number of slots per layer.

    >>> table = curve("python-256", policy="min")
    >>> table.filter(polars.col("hit_rate") >= 0.9).select("bank").row(0)
    ('67',)
    >>> curve("gpt-oss-120b", policy="arc", sample=0.25).columns[3:7]
    ['bank_slots', 'hit_rate', 'hit_rate_lo', 'hit_rate_hi']

    A sample, with a 90% interval, is explained in docs/guides/sampling.md; its columns are the ones under Sampled in
    docs/reference/columns.md.
    Raises BadInput for a policy without such a pass; `lru`, `min` and `static` have one.
    """

    trace: Trace = field(kw_only=False, metadata=option("TRACE", "", positional=True))
    policy: OnePolicy = option_field("lru", "P", "Eviction policy: lru, min or static; with --sample any that evicts.")
    contract: str = option_field(
        "atomic", "C", "Replay contract: atomic; protected for lru and static; runtime for static; with --sample any."
    )
    io_split: int = field(default=4, metadata=IO_SPLIT)
    sample: float | None = option_field(
        None, "SHARE", "Replay only this share of the layers, and estimate the others: 0.25."
    )
    seed: int = option_field(1, "N", "Seed of the draw of layers.", least=0)
    model: Model | None = field(default=None, metadata=MODEL)

    def run(self, progress: Callable[[int, int], None] | None = None) -> ExactCurve | SampledCurve:
        """Count every size, or estimate them from a sample."""
        from flashmoe_sim.residency.curve import hit_curve
        from flashmoe_sim.residency.sample import sampled_curve
        from flashmoe_sim.sweep.plan import plan_policy
        from flashmoe_sim.verbs.given import workload_of

        policy, contract, io_split = plan_policy(self.policy), self.contract, self.io_split
        workload = workload_of(self.trace, self.model)
        if self.sample is not None:
            return sampled_curve(
                workload, policy, contract=contract, share=self.sample, seed=self.seed, progress=progress
            )
        counts = hit_curve(workload, policy, contract=contract, io_split=io_split, progress=progress)
        return ExactCurve(workload, policy, contract, io_split, counts)
