"""Run a sweep: every setup over every workload, on all cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from functools import partial
from typing import Any

from flashmoe_sim.ceilings.optimum import ceiling_setup
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.residency.counts import Counts
from flashmoe_sim.residency.many import Job, plan_jobs
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.sweep.left_out import LeftOut
from flashmoe_sim.sweep.row import result_row, seconds
from flashmoe_sim.sweep.task import Task
from flashmoe_sim.timeline.assemble import Conditions, DoesNotFit
from flashmoe_sim.timeline.timed import default_execution, time_replay


def sweep(
    workloads: Sequence[Workload],
    setups: Sequence[Setup],
    *,
    machines: Sequence[Machine] = (),
    conditions: Callable[[Setup, ModelGeometry | None], Conditions] | None = None,
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    left_out: list[LeftOut] | None = None,
) -> list[dict[str, Any]]:
    """The rows of schema.RESULT_COLUMNS for every workload, setup and machine, in that order.

    machines: what the rows' seconds are of; one replay serves all. conditions: how a setup runs there; as the systems
    with its policy do, if not given.
    threads: by default as many as there are cores.
    progress: called with the number of finished jobs and of all jobs, first before any runs.
    left_out: takes the setups whose banks do not fit a workload; the others run.
    Raises BadInput, before anything runs, for a setup that does not fit a workload; with `left_out`, if none fits any.
    """
    jobs: list[tuple[int, Job]] = []
    timings: list[Callable[[], tuple[Counts, list[tuple[Task, dict[str, Any]]]]]] = []
    ceilings = [{setup: ceiling_setup(workload, setup) for setup in setups} for workload in workloads]
    refused: list[dict[Setup, BadInput]] = [{} for _ in workloads]
    for number, workload in enumerate(workloads):
        wanted = [found for found in ceilings[number].values() if found is not None]
        refusing = None if left_out is None else refused[number]
        if machines:
            plan_jobs(workload, setups, refused=refusing)
            fitting = [setup for setup in setups if setup not in refused[number]]
            timings += [partial(_time, workload, setup, machines, conditions) for setup in fitting]
        counted_setups = wanted if machines else [*setups, *wanted]
        jobs += [(number, job) for job in plan_jobs(workload, counted_setups, refused=refusing)]
    for workload, errors in zip(workloads, refused, strict=True):
        for setup in dict.fromkeys(setups):
            if setup in errors and left_out is not None:
                left_out.append(LeftOut.of(setup, str(errors[setup]), trace=workload.trace.name))
    first_error = next((error for errors in refused for error in errors.values()), None)
    if first_error and all(setup in errors for errors in refused for setup in setups):
        raise first_error
    counts: list[dict[Setup, Counts]] = [{} for _ in workloads]
    if progress:
        progress(0, len(jobs) + len(timings))
    pool = ThreadPoolExecutor(threads or os.cpu_count())
    try:
        for workload in workloads:  # hashed for the rows' ids while the replays run
            pool.submit(getattr, workload.trace, "content_id")
        timed = [pool.submit(timing) for timing in timings]
        running = {pool.submit(job): number for number, job in jobs}
        every: list[Future[Any]] = [*timed, *running]
        for done, future in enumerate(as_completed(every), start=1):
            result = future.result()
            if future in running:
                counted = counts[running[future]]
                for setup, part in result.items():
                    counted[setup] = counted[setup].joined(part) if setup in counted else part
            if progress:
                progress(done, len(every))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    rows = []
    in_order = iter(timed)
    for workload, counted, best, errors in zip(workloads, counts, ceilings, refused, strict=True):
        for setup in setups:
            if setup in errors:
                continue
            ceiling = best[setup]
            of_best = None if ceiling is None else counted.get(ceiling)
            if not machines:
                rows.append(result_row(Task(workload, setup), counted[setup], best=of_best))
                continue
            own, on = next(in_order).result()
            rows += [result_row(task, own, best=of_best, timing=timing) for task, timing in on]
    return rows


def _time(
    workload: Workload,
    setup: Setup,
    machines: Sequence[Machine],
    conditions: Callable[[Setup, ModelGeometry | None], Conditions] | None,
) -> tuple[Counts, list[tuple[Task, dict[str, Any]]]]:
    """One replay, and its seconds on every machine."""
    replayed = replay(workload, setup, record=True)
    how = conditions(setup, workload.geometry) if conditions else Conditions(execution=default_execution(setup))
    on = []
    for machine in machines:
        task = Task(workload, setup, machine, how)
        try:
            timed = time_replay(workload, setup, replayed, machine, how)
        except DoesNotFit:
            timed = None
        on.append((task, seconds(task, timed)))
    return replayed.counts, on
