"""`sim curve`: the hits at every bank size."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from flashmoe_sim.io.errors import Conflict
from flashmoe_sim.io.sections import Column, Section, Table, count, decimals, percent, table
from flashmoe_sim.io.sizes import size
from flashmoe_sim.options import MODEL, option, option_field
from flashmoe_sim.question import IN_CHUNKS, IO_SPLIT
from flashmoe_sim.verbs.base import Progress, Verb

if TYPE_CHECKING:
    import polars

    from flashmoe_sim.policies.base import OnePolicy, Policy
    from flashmoe_sim.residency.counts import Counts
    from flashmoe_sim.residency.sample import SampledCurve
    from flashmoe_sim.residency.workload import Workload
    from flashmoe_sim.verbs.given import Model, Trace

KEPT = (
    "hits",
    "misses",
    "evictions",
    "hit_rate",
    "full_hit_rate",
    "misses_per_token",
    "bytes_per_token",
    "resident_bytes",
)


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
        from flashmoe_sim.residency.workload import Setup
        from flashmoe_sim.schema import frame
        from flashmoe_sim.sweep.task import Task, row_of

        rows = []
        for slots, counts in self.counts.items():
            setup = Setup(Bank(slots=slots), self.policy, self.contract, io_split=self.io_split)
            rows.append(row_of(Task(self.workload, setup), counts.total()))
        return frame(rows)


@dataclass(frozen=True, kw_only=True)
class Curve(Verb["ExactCurve | SampledCurve"]):
    """Count every bank size exactly in one pass over the trace: a row for each number of slots per layer.

    >>> table = curve("python-256", policy="min")
    >>> table.filter(polars.col("hit_rate") >= 0.9).select("bank").row(0)
    ('67',)
    >>> curve("gpt-oss-120b", policy="arc", sample=0.25).columns[3:7]
    ['bank_slots', 'hit_rate', 'hit_rate_lo', 'hit_rate_hi']

    A sample, with a 90% interval, is explained in docs/guides/more.md; its columns are the ones under Sampled in
    docs/reference/columns.md.
    Raises BadInput for a policy without such a pass; `lru`, `min` and `static` have one.
    """

    reads: ClassVar[bool] = True
    help: ClassVar[str] = """Count every bank size of TRACE in one pass; the table shows some, --json all.

    TRACE is a file, or a name from `sim trace catalog`. LRU curves begin at the largest call. --sample estimates the
    curve of a policy that needs a replay for each size, with a 90% interval: docs/guides/more.md.

    \b
    Examples:  sim curve python-256 --policy min
               sim curve gpt-oss-120b --policy arc --sample 0.25
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
    in_chunks: bool = field(default=False, metadata=IN_CHUNKS)

    def check(self) -> None:
        """Raise BadInput for an unknown policy, and for a sample in chunks."""
        from flashmoe_sim.sweep.plan import plan_policy

        plan_policy(self.policy)
        if self.in_chunks and self.sample is not None:
            raise Conflict("--in-chunks with --sample: a sample is drawn from a trace in memory; leave one of them out")

    def run(self, progress: Progress | None = None) -> ExactCurve | SampledCurve:
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

    def document(self, found: ExactCurve | SampledCurve) -> dict[str, Any]:
        """What `--json` prints: every size."""
        from flashmoe_sim.sweep.plan import plan_policy
        from flashmoe_sim.verbs.given import workload_of

        trace = workload_of(self.trace).trace
        identity = {"trace": trace.name, "policy": plan_policy(self.policy).spec, "contract": self.contract}
        if isinstance(found, ExactCurve):
            totals = {slots: counts.total() for slots, counts in found.counts.items()}
            rows = [{"bank": slots, **{name: total[name] for name in KEPT}} for slots, total in totals.items()]
            return {**identity, "curve": rows}
        of = {"layers": found.layers, "of": len(trace.layers), "seed": self.seed}
        return {**identity, "sample": {"kind": "layers", "share": self.sample, **of}, "curve": found.rows}

    def sections(self, found: ExactCurve | SampledCurve) -> list[Section]:
        """A row for some of the sizes."""
        return [Section("", (_exact(found) if isinstance(found, ExactCurve) else self._sampled(found),))]

    def _sampled(self, found: SampledCurve) -> Table:
        from flashmoe_sim.sweep.plan import plan_policy
        from flashmoe_sim.trace.cut import shown_layers
        from flashmoe_sim.verbs.given import workload_of

        trace = workload_of(self.trace).trace
        columns: list[Column] = [
            ("bank", "right", lambda row: str(row["bank_slots"])),
            ("hit %", "right", lambda row: f"{100 * row['hit_rate']:.2f}"),
            ("90% interval", "right", lambda row: f"{100 * row['hit_rate_lo']:.2f} .. {100 * row['hit_rate_hi']:.2f}"),
            ("misses/token", "right", lambda row: decimals(row["misses_per_token"])),
            ("lru hit %", "right", lambda row: percent(row["lru_hit_rate"])),
        ]
        title = f"{trace.name}: {plan_policy(self.policy).spec}, contract {self.contract}, estimated from a sample"
        replayed = f"{len(found.layers)} of {len(trace.layers)} layers (seed {self.seed}): {shown_layers(found.layers)}"
        caption = f"replayed in {replayed}; lru is exact"
        return table(columns, found.rows, title=title, caption=caption)


def _exact(found: ExactCurve) -> Table:
    from flashmoe_sim.residency.curve import round_sizes

    trace, policy = found.workload.trace, found.policy
    totals = {slots: counts.total() for slots, counts in found.counts.items()}
    shown = round_sizes(list(totals))
    columns: list[Column] = [
        ("bank", "right", str),
        ("hits", "right", lambda slots: count(totals[slots]["hits"])),
        ("misses", "right", lambda slots: count(totals[slots]["misses"])),
        ("evicted", "right", lambda slots: count(totals[slots]["evictions"])),
        ("hit %", "right", lambda slots: percent(totals[slots]["hit_rate"])),
        ("full-hit calls %", "right", lambda slots: percent(totals[slots]["full_hit_rate"])),
        ("read/token", "right", lambda slots: size(totals[slots]["bytes_per_token"])),
        ("memory", "right", lambda slots: size(totals[slots]["resident_bytes"])),
    ]
    caption = f"{len(shown)} of {len(totals)} sizes; --json gives all"
    if shown[0] > max(trace.top_k, 1):
        caption += f"; {policy.name} begins at the {shown[0]} experts of the largest call; --policy min has all sizes"
    title = f"{trace.name}: {policy.spec}, contract {found.contract}"
    dispensable = ("evicted", "hits", "full-hit calls %")
    return table(columns, shown, title=title, caption=caption, dispensable=dispensable)
