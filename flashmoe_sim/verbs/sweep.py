"""`sim sweep`: many bank sizes and policies, one table."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from warnings import warn

from flashmoe_sim.io.errors import Conflict, Incomplete, Interrupted, SimError, unknown_name
from flashmoe_sim.io.sections import Part, Section, Table
from flashmoe_sim.io.sizes import size
from flashmoe_sim.options import MODEL, option, option_field
from flashmoe_sim.question import SweepOptions
from flashmoe_sim.verbs.base import Message, Progress, Verb

if TYPE_CHECKING:
    from collections.abc import Callable

    from flashmoe_sim.geometry.model import ModelGeometry
    from flashmoe_sim.machines.machine import Machine
    from flashmoe_sim.residency.workload import Setup, Workload
    from flashmoe_sim.sweep.collect import SweepPlan
    from flashmoe_sim.sweep.ledger import Ledger
    from flashmoe_sim.sweep.left_out import LeftOut
    from flashmoe_sim.sweep.passes import SweepEstimate
    from flashmoe_sim.sweep.workers import OpenWorkers
    from flashmoe_sim.timeline.assemble import Conditions
    from flashmoe_sim.verbs.given import Model, Read, Trace

LISTED_BANKS = 12
MOST_ROWS = 60  # of the tables of several traces; if there are more, only the summary is printed
IDENTITY = ("trace", "model", "bank", "policy", "prefetch", "contract", "scope", "machine", "execution")
DOES = {
    "stack": "one pass for all sizes",
    "walk": "some sizes, layer by layer",
    "alone": "one replay",
    "timed": "replays, timed on machines",
}


@dataclass(frozen=True, eq=False)
class OpenSweep:
    """A sweep whose traces are read, and whose ledger is open.

    left_out: what does not fit; planning and running add to it. ranked_by: how the rows of a table are sorted.
    """

    setups: list[Setup]
    conditions: Callable[[Setup, ModelGeometry | None], Conditions]
    workloads: list[Workload]
    machines: list[Machine]
    workers: OpenWorkers
    cores: int
    ledger: Ledger | None
    left_out: list[LeftOut]
    ranked_by: str | None

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

    def planned(self) -> PlannedSweep:
        """The plan in numbers."""
        from flashmoe_sim.residency.many import CountPass
        from flashmoe_sim.sweep.passes import estimate

        plan = self.plan()
        kinds = Counter(one.work.kind if isinstance(one.work, CountPass) else "timed" for one in plan.passes)
        about = estimate(plan.passes, self.workloads, threads=self.cores)
        return PlannedSweep(len(plan.tasks), len(plan.known), len(plan.missing), kinds, about, self.left_out)


@dataclass(frozen=True, eq=False)
class Swept:
    """The rows of a sweep, ranked as requested.

    warnings: what the user should know about them. failures: why the files of results are not all written.
    """

    opened: OpenSweep
    rows: list[dict[str, Any]]
    warnings: list[str]
    failures: list[SimError]

    @property
    def traces(self) -> list[str]:
        """The names of the traces that have rows."""
        return list(dict.fromkeys(row["trace"] for row in self.rows))


@dataclass(frozen=True, eq=False)
class PlannedSweep:
    """What a sweep would do. passes: how many there are of each kind."""

    tasks: int
    known: int
    missing: int
    passes: Counter[str]
    estimate: SweepEstimate
    left_out: list[LeftOut]


@dataclass(frozen=True, kw_only=True)
class Sweep(SweepOptions, Verb[Swept | PlannedSweep]):
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

    reads: ClassVar[bool] = True
    keeps: ClassVar[bool] = True
    shown: ClassVar[tuple[str, ...]] = ("bank", "policy", "contract", "model", "machine", "out")
    help: ClassVar[str] = """Count the hits of banks of many sizes, and the best that any policy could reach.

    TRACE is a file, or a name from `sim trace catalog`; without one the first of the catalogue is used. Several traces
    add a table over all of them; with more than 60 rows, only that table is printed. Banks that cannot hold a call are
    left out, with the reason; it is an error only if no bank can.

    A sweep with --out that was stopped, even killed, resumes if the same command is run again. Later commands with more
    banks, policies or machines add rows. The table shows the requested rows; the files have all rows of the folder.

    \b
    Examples:  sim sweep --bank 16..256
               sim sweep my.jsonl --model sidecar/ --bank 16,64 --policy lru,min
               sim sweep gpt-oss-120b --bank 16,32 --machine m3-max-48,rtx-4090
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
    force: bool = option_field(False, "", "Start again: drop the existing rows of --out DIR.", on_command_line=True)
    dry_run: bool = option_field(
        False, "", "Print the plan: tasks, passes, and an estimate of time and memory.", on_command_line=True
    )

    def check(self) -> None:
        """Raise BadInput for a plan of a cluster."""
        if self.dry_run and self.cluster is not None:
            raise Conflict("--dry-run estimates for threads of this machine; give --threads N in place of --cluster")

    def run(
        self, progress: Progress | None = None, read: Read | None = None, message: Message = warn
    ) -> Swept | PlannedSweep:
        """Sweep, and write the tables of --out; or plan it.

        An interrupted sweep keeps the rows in its ledger, and says how to go on.
        """
        with self.opened(read=read) as opened:
            for note in () if opened.ledger is None else opened.ledger.notes:
                message(note)
            if self.dry_run:
                return opened.planned()
            rows = self._rows(opened, progress, message)
            if self.rank is not None:
                from flashmoe_sim.sweep.summary import ranked

                rows = ranked(rows, self.rank)
            warnings = _warnings(rows, opened)
            failures = []
            if opened.ledger is not None:
                try:
                    _export(opened.ledger, rows, message)
                except SimError as error:  # after the table, which is not lost
                    failures.append(error)
            return Swept(opened, rows, warnings, failures)

    @contextmanager
    def opened(self, *, read: Read | None = None) -> Iterator[OpenSweep]:
        """The sweep with its traces read and its ledger open, in the block.

        read: reads a trace with its model, like `workload_of`.
        """
        from flashmoe_sim.sweep.ledger import Ledger
        from flashmoe_sim.sweep.plan import plan_sweep
        from flashmoe_sim.sweep.workers import run_on
        from flashmoe_sim.sweep.workloads import plan_workloads
        from flashmoe_sim.verbs.given import learnt_machine, machines_of, workload_of

        by = self._ranked_by()
        if self.in_chunks:
            _check_in_chunks(self)
        workers = run_on(threads=self.threads, cluster=self.cluster)
        left_out: list[LeftOut] = []
        setups, conditions = plan_sweep(self, in_chunks=self.in_chunks, left_out=left_out)
        machines, named = machines_of(self.machine), self.named()
        if self.out is not None:
            from flashmoe_sim.sweep.store import check_folder

            check_folder(Path(self.out), force=self.force)
        with ExitStack() as stack:
            loaded = [(read or workload_of)(trace, self.model, in_chunks=self.in_chunks) for trace in named]
            workloads = plan_workloads(loaded, named, top_ks=self.top_k)
            if self.draft:
                from flashmoe_sim.drafts import drafted, given_drafts

                given = self.draft, self.accept, self.drafter
                workloads = [drafted(one, given_drafts(*given, one.geometry)) for one in workloads]
            if self.measured:
                machines = [learnt_machine(_only(machines), self.measured, workload=workloads[0])]
            ledger = None if self.out is None else stack.enter_context(Ledger(Path(self.out), force=self.force))
            cores = self.threads or os.cpu_count() or 1
            yield OpenSweep(setups, conditions, workloads, machines, workers, cores, ledger, left_out, by)

    def _ranked_by(self) -> str | None:
        """How the rows of a table are sorted: as --rank says, else by speed or hits if --policy is `all`.

        Raises BadInput for an unknown way, and for speeds without a machine.
        """
        from flashmoe_sim.sweep.plan import names_all
        from flashmoe_sim.sweep.summary import RANKS

        if self.rank is not None and self.rank not in RANKS:
            raise unknown_name("--rank", self.rank, RANKS)
        if self.rank == "tok/s" and self.machine is None:
            raise Incomplete("--rank tok/s: only a machine has seconds; add --machine X, or --rank hits")
        if self.rank is None and names_all(self.policy):
            return "hits" if self.machine is None else "tok/s"
        return self.rank

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

    def _rows(self, opened: OpenSweep, progress: Progress | None, message: Message) -> list[dict[str, Any]]:
        """The rows; a sweep that is stopped keeps those in its ledger, and says how to go on."""
        from flashmoe_sim.sweep.workers import Lost

        summary = f"banks {_listed(opened.setups)}; {_count(len(opened.setups), 'setup')}"
        summary += f" x {_count(len(opened.workloads), 'trace')}"
        if not self.traces:
            summary += f": the bundled {opened.workloads[0].trace.name}, since none was given"
        ledger = opened.ledger
        known = 0 if ledger is None else len(ledger)

        def begun(done: int, total: int) -> None:
            if not done:
                message(summary)  # only now is it known that some setup fits
                if known:
                    message(f"going on with the {_count(known, 'row')} of {self.out}; --force starts again")
            if progress is not None:
                progress(done, total)

        try:
            return opened.rows(begun)
        except (KeyboardInterrupt, Lost) as stop:
            if ledger is not None:
                ledger.refresh()  # an interruption may come between a row's write and its count
            if ledger is None or not len(ledger):
                raise
            _export(ledger, [], message)
            kept = f"{_count(len(ledger), 'row')} of {self.out} are kept; the same command goes on from there"
            if isinstance(stop, Lost):
                raise Lost(f"{stop}; {kept}") from None
            raise Interrupted(f"interrupted; {kept}", stop) from None

    def document(self, found: Swept | PlannedSweep) -> dict[str, Any]:
        """What `--json` prints. identity: the values of each column that identifies rows."""
        if isinstance(found, PlannedSweep):
            return {
                "tasks": found.tasks,
                "in_ledger": found.known,
                "to_compute": found.missing,
                "passes": dict(found.passes),
                "estimate": {
                    "seconds": found.estimate.seconds,
                    "threads": found.estimate.threads,
                    "memory_bytes": found.estimate.memory_bytes,
                },
                "left_out": [one._asdict() for one in found.left_out],
            }
        from flashmoe_sim.sweep.summary import over_traces

        traces = [workload.trace for workload in found.opened.workloads]
        notes = [f"{trace.name}: {note}" for trace in traces for note in trace.notes]
        identity = {name: list(dict.fromkeys(row[name] for row in found.rows)) for name in IDENTITY}
        several = {"summary": over_traces(found.rows)} if len(found.traces) > 1 else {}
        return {
            "identity": identity,
            "warnings": [*notes, *found.warnings],
            "left_out": [one._asdict() for one in found.opened.left_out],
            **several,
            "rows": found.rows,
        }

    def sections(self, found: Swept | PlannedSweep) -> list[Section]:
        """The rows of each trace, and one table over all; or the plan."""
        if isinstance(found, PlannedSweep):
            return [Section("", _plan(found))]
        from flashmoe_sim.report.sweep_tables import of_several, of_trace
        from flashmoe_sim.sweep.summary import over_traces, ranked

        rows, traces, opened = found.rows, found.traces, found.opened
        by, shared = opened.ranked_by, (opened.setups, opened.left_out, self.contract)
        tables: list[Table] = []
        if len(traces) == 1 or len(rows) <= MOST_ROWS:
            for workload in opened.workloads:
                if own := [row for row in rows if row["trace"] == workload.trace.name]:
                    own = ranked(own, by) if by else own
                    tables += of_trace(workload, own, *shared)
        if len(traces) > 1:
            summary = over_traces(rows)
            summary = ranked(summary, by) if by else summary
            tables.append(of_several(summary, traces, *shared))
        return [Section("", tuple(tables))]

    def notes(self, found: Swept | PlannedSweep) -> list[str]:
        """Warnings, and where the rows are if they are too many to print."""
        if isinstance(found, PlannedSweep):
            return []
        many = len(found.traces) > 1 and len(found.rows) > MOST_ROWS
        where = f"{len(found.rows)} rows: too many to print; --out DIR or --json has them"
        return [*([where] if many else []), *found.warnings]

    def failures(self, found: Swept | PlannedSweep) -> list[SimError]:
        """Why the files of results are not all written."""
        return [] if isinstance(found, PlannedSweep) else found.failures


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


def _warnings(rows: list[dict[str, Any]], opened: OpenSweep) -> list[str]:
    from flashmoe_sim.sweep.left_out import reasons
    from flashmoe_sim.sweep.workloads import by_hindsight

    notes = [note for machine in opened.machines for note in machine.notes]
    known = by_hindsight(opened.workloads, (setup.policy for setup in opened.setups))
    warnings = [*reasons(opened.left_out), *known, *_aliasing(rows), *notes]
    if opened.ledger is not None and (unknown := sum(row["id"] is None for row in rows)):
        warnings.append(
            f"{_count(unknown, 'row')} from code of your own that cannot be identified by its content, such as an open "
            "file: computed again by every sweep, and not kept in the ledger"
        )
    return warnings


def _aliasing(rows: list[dict[str, Any]]) -> list[str]:
    aliased = [row for row in rows if row["aliased_refs"]]
    if not aliased:
        return []
    worst = max(aliased, key=lambda row: row["aliased_refs"] / row["requests"])
    return [
        f"slot aliasing in {len(aliased)} of {len(rows)} rows, at worst {worst['aliased_refs']:,} of "
        f"{worst['requests']:,} requests (bank {worst['bank']}): there the runtime computes experts with "
        "the wrong weights; --contract protected shows the banks without it"
    ]


def _export(ledger: Ledger, rows: list[dict[str, Any]], message: Message) -> None:
    """Write the files of results: `rows` first, then all other rows of the ledger, including concurrent sweeps'."""
    from flashmoe_sim.report.figures import results
    from flashmoe_sim.sweep.store import write_results

    missing, out = results.missing(), ledger.folder
    draw = None if missing else results.draw
    ledger.refresh()
    write_results(ledger.rows(rows), out, draw=draw)
    while ledger.refresh():  # of two sweeps, the last to write has the rows of both
        write_results(ledger.rows(rows), out, draw=draw)
    if missing:
        message(f"wrote results.parquet and results.csv to {out}; no results.png: {missing}")
    else:
        message(f"wrote results.parquet, results.csv and results.png to {out}")


def _plan(found: PlannedSweep) -> tuple[Part, ...]:
    """The tasks, how many are known, the passes by kind, and the estimate."""
    about = found.estimate
    tasks = f"{found.tasks:,} tasks: {found.known:,} in the ledger, {found.missing:,} to compute"
    cells = [[kind, f"{number:,}", DOES[kind]] for kind, number in found.passes.items()]
    passes = [Table([("pass", "left"), ("number", "right"), ("what it does", "left")], cells)] if cells else []
    rough = (
        "Rough estimate for an idle machine, within a factor of about 3: "
        f"{_duration(about.seconds)} on {_count(about.threads, 'thread')}, "
        f"up to {size(about.memory_bytes)} of memory. Start (seconds) and compiling (up to minutes, once) come on "
        "top; a busy machine takes several times as long."
    )
    return tasks, *passes, rough


def _listed(setups: list[Setup]) -> str:
    banks = list(dict.fromkeys(str(setup.bank) for setup in setups))
    if len(banks) > LISTED_BANKS:
        banks = [*banks[:3], "...", f"{banks[-1]} ({len(banks)} sizes)"]
    return ", ".join(banks)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _duration(seconds: float) -> str:
    if seconds < 1:
        return "less than a second"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"
