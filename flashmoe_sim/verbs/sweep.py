"""`sim sweep`: many bank sizes and policies, one table."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashmoe_sim.io.errors import Conflict, Incomplete, unknown_name
from flashmoe_sim.options import MODEL, option, option_field
from flashmoe_sim.question import SweepOptions

if TYPE_CHECKING:
    from flashmoe_sim.geometry.model import ModelGeometry
    from flashmoe_sim.machines.machine import Machine
    from flashmoe_sim.residency.setup import Setup
    from flashmoe_sim.residency.workload import Workload
    from flashmoe_sim.sweep.collect import SweepPlan
    from flashmoe_sim.sweep.ledger import Ledger
    from flashmoe_sim.sweep.left_out import LeftOut
    from flashmoe_sim.sweep.workers import OpenWorkers
    from flashmoe_sim.timeline.assemble import Conditions
    from flashmoe_sim.verbs.base import Progress
    from flashmoe_sim.verbs.given import Model, Trace


@dataclass(frozen=True, eq=False)
class OpenSweep:
    """A sweep whose traces are read, and whose ledger is open.

    left_out: what does not fit; planning and running add to it.
    """

    setups: list[Setup]
    conditions: Callable[[Setup, ModelGeometry | None], Conditions]
    workloads: list[Workload]
    machines: list[Machine]
    workers: OpenWorkers
    cores: int
    ledger: Ledger | None
    left_out: list[LeftOut]

    def plan(self) -> SweepPlan:
        """What it would do."""
        from flashmoe_sim.sweep.collect import SweepPlan, plan_tasks

        tasks = plan_tasks(self.workloads, self.setups, machines=self.machines, conditions=self.conditions)
        return SweepPlan(tasks, self.ledger, self.left_out)

    def rows(self, progress: Progress | None = None) -> list[dict[str, Any]]:
        """The rows of schema.RESULT_COLUMNS for every workload, setup and machine, in that order."""
        from flashmoe_sim.sweep.collect import sweep

        return sweep(
            self.workloads,
            self.setups,
            machines=self.machines,
            conditions=self.conditions,
            workers=self.workers,
            ledger=self.ledger,
            progress=progress,
            left_out=self.left_out,
        )


@dataclass(frozen=True, kw_only=True)
class Sweep(SweepOptions):
    """Replay traces against banks of many sizes under many policies, on all cores: a row for each, with the optimum.

    >>> table = sweep("python-256", bank="16..256", policy="lru,min", contract="atomic")
    >>> table.select("bank", "policy", "hits", polars.col("best_hit_rate").round(3)).row(0)
    ('16', 'lru', 20682, 0.622)
    >>> sweep(["python-256", "prose-256"], bank=[16, 64], policy=["lru", "fifo"]).height
    8

    Banks, policies, predictors and machines may be lists; there is a row for every combination, and a row's speed is
    null if the model does not fit the machine. Under `runtime` and `protected`, `min` is counted under `atomic`,
    without a predictor. Without a trace, the first of the catalogue is used. A sweep in chunks is without `top_k`,
    `machine` and `cluster`. `sim sweep --out` also writes tables.
    Warns about banks that do not fit a trace, and returns the rows of the others.
    Raises BadInput, before anything runs, for unreadable files or impossible combinations, and if no bank fits any
    trace.
    """

    traces: Trace | Iterable[Trace] = field(
        default=(), kw_only=False, metadata=option("[TRACE]...", "", positional=True)
    )
    top_k: str | int | Iterable[int] | None = option_field(
        None, "K,K", "Cut each trace to these experts per token.", flag="--topk"
    )
    model: Model | None = field(default=None, metadata=MODEL)
    out: str | Path | None = option_field(
        None,
        "DIR",
        "Store each row in this folder's ledger.ndjson, and write results.parquet, .csv and .png with all its "
        "rows; known rows are not computed again.",
    )
    rank: str | None = option_field(
        None,
        "BY",
        "Sort the rows of each bank and machine by `tok/s` or by `hits`; default: as given, and with --policy all "
        "by tok/s on a machine, else by hits.",
    )
    threads: int | None = option_field(None, "N", "Passes at once; default: one per core.", least=1, most=1024)
    cluster: str | None = option_field(
        None,
        "ADDRESS",
        "Run on the workers of a dask scheduler, tcp://HOST:PORT, or local:N for N processes (docs/guides/sweeps.md).",
    )
    in_chunks: bool = option_field(False, "", "For traces larger than memory: unpack TRACE into temporary files.")

    @contextmanager
    def opened(
        self,
        *,
        force: bool = False,
        read: Callable[..., Workload] | None = None,
    ) -> Iterator[OpenSweep]:
        """The sweep with its traces read and its ledger open, in the block.

        force: drop the rows that the ledger has. read: reads a trace with its model, like `workload_of`.
        """
        from flashmoe_sim.sweep.ledger import Ledger
        from flashmoe_sim.sweep.plan import plan_sweep
        from flashmoe_sim.sweep.workers import run_on
        from flashmoe_sim.sweep.workloads import plan_workloads
        from flashmoe_sim.verbs.given import learnt_machine, machines_of, workload_of

        self.check_rank()
        if self.in_chunks:
            _check_in_chunks(self)
        workers = run_on(threads=self.threads, cluster=self.cluster)
        left_out: list[LeftOut] = []
        setups, conditions = plan_sweep(self, in_chunks=self.in_chunks, left_out=left_out)
        machines, named = machines_of(self.machine), self.named()
        if self.out is not None:
            from flashmoe_sim.sweep.store import check_folder

            check_folder(Path(self.out), force=force)
        with ExitStack() as stack:
            loaded = [(read or workload_of)(trace, self.model, in_chunks=self.in_chunks) for trace in named]
            workloads = plan_workloads(loaded, named, top_ks=self.top_k)
            if self.draft:
                from flashmoe_sim.drafts import drafted, given_drafts

                given = self.draft, self.accept, self.drafter
                workloads = [drafted(one, given_drafts(*given, one.geometry)) for one in workloads]
            if self.measured:
                machines = [learnt_machine(_only(machines), self.measured, workload=workloads[0])]
            ledger = None if self.out is None else stack.enter_context(Ledger(Path(self.out), force=force))
            cores = self.threads or os.cpu_count() or 1
            yield OpenSweep(setups, conditions, workloads, machines, workers, cores, ledger, left_out)

    def check_rank(self) -> None:
        """Raise BadInput for an unknown way to rank, and for speeds without a machine."""
        from flashmoe_sim.sweep.summary import RANKS

        if self.rank is not None and self.rank not in RANKS:
            raise unknown_name("--rank", self.rank, RANKS)
        if self.rank == "tok/s" and self.machine is None:
            raise Incomplete("--rank tok/s: only a machine has seconds; add --machine X, or --rank hits")

    def named(self) -> list[Trace]:
        """The traces, the first of the catalogue if none is given."""
        from flashmoe_sim.trace.bundled import catalog
        from flashmoe_sim.verbs.given import Trace

        if self.traces == ():
            return [next(iter(catalog()))]
        several = [self.traces] if isinstance(self.traces, Trace) else list(self.traces)
        if not several:
            raise Incomplete("no traces given; give at least one")
        return several


def _check_in_chunks(question: Sweep) -> None:
    """Raise BadInput for what would take memory that grows with a trace."""
    if question.machine:
        raise Conflict("--in-chunks only counts; leave out --machine, or sweep the trace in memory")
    if question.cluster is not None:
        raise Conflict("--in-chunks sweeps in one process; leave out --cluster, or sweep the trace in memory")
    if question.top_k is not None:
        raise Conflict("--in-chunks with --topk: a trace is cut to fewer experts in memory; leave one of them out")


def _only(machines: list[Machine]) -> Machine:
    """The machine on which speeds were measured."""
    if len(machines) != 1:
        raise Conflict(f"--measured: speeds are of one machine; give one with --machine, not {len(machines)}")
    return machines[0]
