"""Sweeps over traces that are read in chunks: one pass over a trace serves all of its setups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from flashmoe_sim.ceilings.optimum import ceiling_setup
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.prefetchers.none import NoPrefetch
from flashmoe_sim.residency.long import each_chunk, fit_head, replay_chunks
from flashmoe_sim.residency.long_setups import reads_twice
from flashmoe_sim.residency.many import fitting
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.residency.workload import Workload, fit
from flashmoe_sim.sweep.collect import Row, plan_tasks
from flashmoe_sim.sweep.estimate import (
    CALL_BYTES,
    PREDICTION_NS,
    PROGRAM_BYTES,
    READ_NS,
    REFERENCE_BYTES,
    WALK_NS,
    Estimate,
)
from flashmoe_sim.sweep.ledger import Ledger
from flashmoe_sim.sweep.left_out import LeftOut
from flashmoe_sim.sweep.row import row_of
from flashmoe_sim.sweep.task import Task
from flashmoe_sim.trace.chunk import Chunk, LongTrace
from flashmoe_sim.trace.long_content import Content, ReadHead, unchanged


def check_in_chunks(*, machine: Any, cluster: str | None, top_k: Any) -> None:
    """Raise BadInput for what a sweep in chunks cannot do."""
    if machine:
        raise BadInput("--in-chunks only counts; leave out --machine, or sweep the whole trace")
    if cluster is not None:
        raise BadInput("--in-chunks reads a trace in one process; leave out --cluster, or sweep the whole trace")
    if top_k is not None:
        raise BadInput("--in-chunks with --topk: a trace is cut to fewer experts in memory; leave one of them out")


def read_head(trace: LongTrace, geometry: ModelGeometry | None = None) -> Workload:
    """Read a long trace once, for a workload without calls whose tasks have the ids of the whole trace.

    Raises BadInput whenever `prepare` does, for any call in it.
    """
    content = Content(trace)
    for _ in each_chunk(content.trace, fit_head(trace.head, geometry)):
        pass
    if not content.head.all_refs:
        raise BadInput(f"{trace.head.name}: no routed calls in it; record or convert the trace again")
    return fit(content.head, geometry)


class LongPlan:
    """What a sweep in chunks will do.

    tasks: the ones whose banks fit, as far as the head of a trace shows. known: their rows in the ledger. missing: the
    others. replays: what is replayed while each trace is read, including the optimum of each bank.
    Raises BadInput if no task fits; `left_out` receives the tasks that do not.
    """

    def __init__(
        self, workloads: Sequence[Workload], setups: Sequence[Setup], ledger: Ledger | None, left_out: list[LeftOut]
    ) -> None:
        tasks = plan_tasks(workloads, setups)
        self.known = {task: row for task in tasks if ledger is not None and (row := ledger.row_of(task)) is not None}
        self.missing: list[Task] = []
        self.replays: dict[Workload, list[Setup]] = {}
        errors: list[BadInput] = []
        for workload in workloads:
            missing = [task for task in tasks if task.workload is workload and task not in self.known]
            refused: dict[Setup, BadInput] = {}
            fits = dict(fitting(workload, [task.setup for task in missing], refused=refused))
            best = [ceiling_setup(workload, setup) for setup in fits]
            if fits:
                self.replays[workload] = list(dict.fromkeys([*fits, *filter(None, best)]))
            self.missing += [task for task in missing if task.setup in fits]
            left_out += [LeftOut.of(setup, str(why), trace=workload.trace.name) for setup, why in refused.items()]
            errors += refused.values()
        planned = {*self.known, *self.missing}
        self.tasks = [task for task in tasks if task in planned]
        if not self.tasks:
            raise errors[0]


def sweep_in_chunks(
    longs: Mapping[Workload, LongTrace],
    setups: Sequence[Setup],
    *,
    threads: int,
    left_out: list[LeftOut],
    ledger: Ledger | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Row]:
    """The rows that `collect.sweep` returns for whole traces, from traces that are read in chunks, one after another.

    longs: the result of `read_head` for each trace, and the trace. threads: how many setups are replayed at once.
    left_out: receives the setups that do not fit a trace; some show only while it is read.
    progress: called with the calls read so far, in all readings, and with the total.
    Raises BadInput if no setup fits any trace, and for a trace that changed since `read_head`.
    """
    plan = LongPlan([*longs], setups, ledger, left_out)
    rows = plan.known
    if ledger is not None:
        ledger.begin()
        ledger.append([*rows.values()])
    total = sum(_readings(some) * _head(workload).all_calls for workload, some in plan.replays.items())
    done = 0
    if progress:
        progress(done, total)
    errors: list[BadInput] = []
    for workload, some in plan.replays.items():
        trace = unchanged(longs[workload], _head(workload))

        def read(trace: LongTrace = trace) -> Iterator[Chunk]:
            nonlocal done
            for chunk in trace.read():
                yield chunk
                done += chunk.calls
                if progress and done:
                    progress(done, total)

        refused: dict[Setup, BadInput] = {}
        counted = replay_chunks(LongTrace(trace.head, read), some, workload.geometry, threads=threads, refused=refused)
        totals = {setup: counts.total() for setup, counts in counted.items()}
        found = {}
        for task in plan.missing:
            if task.workload is workload and task.setup in totals:
                best = ceiling_setup(workload, task.setup)
                found[task] = row_of(task, totals[task.setup], best=None if best is None else totals.get(best))
            elif task.workload is workload:
                why = refused[task.setup]
                left_out.append(LeftOut.of(task.setup, str(why), trace=workload.trace.name))
                errors.append(why)
        rows |= found
        if ledger is not None:
            ledger.append([*found.values()])
    if not rows:
        raise errors[0]
    return [rows[task] for task in plan.tasks if task in rows]


def estimate_in_chunks(plan: LongPlan, *, threads: int) -> Estimate:
    """Like `estimate.estimate`, for a sweep in chunks."""
    total_ns, longest = 0.0, 0
    for workload, some in plan.replays.items():
        head = _head(workload)
        predicted = sum(not isinstance(setup.prefetch, NoPrefetch) for setup in some)
        each = READ_NS * _readings(some) + (WALK_NS * len(some) + PREDICTION_NS * predicted) / threads
        total_ns += head.all_refs * each
        longest = max(longest, head.longest_refs)
    return Estimate(total_ns / 1e9, threads, PROGRAM_BYTES + longest * (CALL_BYTES + REFERENCE_BYTES))


def _readings(setups: Sequence[Setup]) -> int:
    return 1 + len({setup.scope for setup in setups if reads_twice(setup)})


def _head(workload: Workload) -> ReadHead:
    assert isinstance(workload.trace, ReadHead)
    return workload.trace
