"""Run a sweep: tasks become passes, passes run on workers, and every row is stored as soon as it is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from typing import Any

from flashmoe_sim.ceilings.optimum import ceiling_setup
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.residency.counts import Counts
from flashmoe_sim.residency.many import CountPass
from flashmoe_sim.residency.workload import Setup, Workload
from flashmoe_sim.sweep.ledger import Ledger
from flashmoe_sim.sweep.left_out import LeftOut
from flashmoe_sim.sweep.passes import Pass, Refused, TimedPass, plan_passes, run_passes
from flashmoe_sim.sweep.task import Task, row_of
from flashmoe_sim.sweep.workers import OpenWorkers, in_threads
from flashmoe_sim.timeline.assemble import Conditions
from flashmoe_sim.timeline.from_replay import default_execution

Row = dict[str, Any]
MOST, PASS_MS = 32, 1.0  # passes per batch, and the time of a pass on the shortest trace
Key = tuple[str, Setup]  # a workload's content id, and what is counted


def sweep(
    workloads: Sequence[Workload],
    setups: Sequence[Setup],
    *,
    machines: Sequence[Machine] = (),
    conditions: Callable[[Setup, ModelGeometry | None], Conditions] | None = None,
    workers: OpenWorkers | None = None,
    ledger: Ledger | None = None,
    progress: Callable[[int, int], None] | None = None,
    left_out: list[LeftOut] | None = None,
) -> list[Row]:
    """The rows of schema.RESULT_COLUMNS for every workload, setup and machine, in that order.

    machines: on which rows are timed; one replay serves all. conditions: how a setup runs on them; by default like the
    systems with its policy.
    workers: where the passes run; by default as many threads as there are cores.
    ledger: has rows that need not be computed, and stores the others as soon as each is known.
    progress: called with the numbers of finished and of all passes, the first time before any runs.
    left_out: receives the setups whose banks do not fit a workload; the others run.
    Raises BadInput, before anything runs, for a setup that does not fit a workload; with `left_out`, if none fits any.
    """
    plan = SweepPlan(plan_tasks(workloads, setups, machines=machines, conditions=conditions), ledger, left_out)
    rows = plan.known
    if ledger is not None:
        ledger.begin()
        ledger.append(list(rows.values()))
    if progress:
        progress(0, len(plan.passes))
    with closing(_run(plan, workers or in_threads())) as results:
        for done, found in enumerate(results, start=1):
            rows |= found
            if ledger is not None:
                ledger.append(list(found.values()))
            if progress:
                progress(done, len(plan.passes))
    return [rows[task] for task in plan.tasks]


def plan_tasks(
    workloads: Sequence[Workload],
    setups: Sequence[Setup],
    *,
    machines: Sequence[Machine] = (),
    conditions: Callable[[Setup, ModelGeometry | None], Conditions] | None = None,
) -> list[Task]:
    """A task for every workload, setup and machine, in that order."""
    if not machines:
        return [Task(workload, setup) for workload in workloads for setup in setups]
    tasks = []
    for workload in workloads:
        for setup in setups:
            how = conditions(setup, workload.geometry) if conditions else Conditions(execution=default_execution(setup))
            tasks += [Task(workload, setup, machine, how) for machine in machines]
    return tasks


class SweepPlan:
    """What a sweep will do.

    tasks: the ones that fit their workloads. known: their rows in the ledger. missing: the others.
    passes: count and time the missing ones. refused: what does not fit, and why.
    Raises BadInput for a task that does not fit its workload; with `left_out`, which receives these tasks, only if none
    fits.
    """

    def __init__(self, tasks: Sequence[Task], ledger: Ledger | None, left_out: list[LeftOut] | None) -> None:
        self.known = {task: row for task in tasks if ledger is not None and (row := ledger.row_of(task)) is not None}
        missing = [task for task in tasks if task not in self.known]
        self.refused: Refused = {}
        self.passes: list[Pass] = plan_passes(missing, refused=None if left_out is None else self.refused)
        self.missing = [task for task in missing if _key(task) not in self.refused]
        self.tasks = [task for task in tasks if _key(task) not in self.refused]
        if not self.tasks and self.refused:
            raise self.refused[_key(tasks[0])]
        if left_out is not None:
            gone = {(task.workload, task.setup): _key(task) for task in missing if _key(task) in self.refused}
            left_out += [
                LeftOut.of(setup, str(self.refused[key]), trace=workload.trace.name)
                for (workload, setup), key in gone.items()
            ]


def _key(task: Task) -> Key:
    return task.workload.content_id, task.setup


def _run(plan: SweepPlan, workers: OpenWorkers) -> Generator[dict[Task, Row]]:
    """The rows that each pass completes, as passes finish."""
    rows = _Rows(plan)
    if not plan.passes:
        return
    workloads = {task.workload.content_id: task.workload for task in plan.missing}
    with workers() as (run, batch_ms):
        batches = _batches(plan.passes, workloads, batch_ms)
        jobs = [(batch, workloads[batch[0].workload_id]) for batch in batches]
        for number, results in run(run_passes, jobs):
            for one, result in zip(batches[number], results, strict=True):
                yield rows.add(one, result)


def _batches(passes: Sequence[Pass], workloads: Mapping[str, Workload], batch_ms: float) -> list[list[Pass]]:
    """Consecutive passes over one workload, about `batch_ms` long together, but not more than MOST."""
    batches: list[list[Pass]] = []
    spent_ms = batch_ms
    for one in passes:
        full = spent_ms >= batch_ms or len(batches[-1]) == MOST or batches[-1][0].workload_id != one.workload_id
        if full:
            batches.append([])
            spent_ms = 0.0
        batches[-1].append(one)
        spent_ms += PASS_MS + one.ns(workloads[one.workload_id]) / 1e6
    return batches


class _Rows:
    """Combines the results of passes until a task has all that its row needs.

    A source is where the numbers of a row come from: a count, or a replay timed on a machine.
    """

    def __init__(self, plan: SweepPlan) -> None:
        counted = [(one.workload_id, one.work) for one in plan.passes if isinstance(one.work, CountPass)]
        self.parts_left = Counter((of, setup) for of, work in counted for setup in work.setups)
        self.counts: dict[Key, Counts] = {}
        self.found: dict[Any, Row] = {}
        self.waiting: dict[Any, list[tuple[Task, Any]]] = {}
        for task in plan.missing:
            setup = ceiling_setup(task.workload, task.setup)
            best = None if setup is None else (task.workload.content_id, setup)
            if best in plan.refused:
                best = None
            for source in {_source(task), best or _source(task)}:
                self.waiting.setdefault(source, []).append((task, best))

    def add(self, one: Pass, result: list[Any]) -> dict[Task, Row]:
        """The rows that this result completes."""
        new: dict[Any, Row] = {}
        if isinstance(one.work, TimedPass):
            for timed, (counts, on) in zip(one.work.replays, result, strict=True):
                total, key = counts.total(), (one.workload_id, timed.setup)
                for machine, timing in zip(timed.machines, on, strict=True):
                    new[key, machine, timed.conditions] = total | timing
        else:
            for setup, part in zip(one.work.setups, result, strict=True):
                key = (one.workload_id, setup)
                self.counts[key] = self.counts[key].joined(part) if key in self.counts else part
                self.parts_left[key] -= 1
                if not self.parts_left[key]:
                    new[key] = self.counts.pop(key).total()
        self.found |= new
        ready = [each for source in new for each in self.waiting.pop(source, ())]
        return {
            task: row_of(task, self.found[_source(task)], best=self.found[best] if best else None)
            for task, best in ready
            if _source(task) in self.found and (best is None or best in self.found)
        }


def _source(task: Task) -> Any:
    return _key(task) if task.machine is None else (_key(task), task.machine, task.conditions)
