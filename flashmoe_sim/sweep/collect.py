"""Run a sweep: every setup over every workload, on all cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from functools import partial
from typing import Any

from flashmoe_sim.ceilings.optimum import ceiling_setup
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.residency.counts import Counts
from flashmoe_sim.residency.many import Job, plan_jobs
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.sweep.row import OnMachine, result_row
from flashmoe_sim.timeline.assemble import Conditions, DoesNotFit
from flashmoe_sim.timeline.timed import default_execution, time_replay


def sweep(
    workloads: Sequence[Workload],
    setups: Sequence[Setup],
    *,
    machines: Sequence[Machine] = (),
    conditions: Callable[[Setup], Conditions] | None = None,
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[dict[str, Any]]:
    """The rows of schema.RESULT_COLUMNS for every workload, setup and machine, in that order.

    machines: what the rows' seconds are of; one replay serves all. conditions: how a setup runs there; as the systems
    with its policy do, if not given.
    threads: by default as many as there are cores.
    progress: called with the number of finished jobs and of all jobs, first before any runs.
    Raises BadInput, before anything runs, where a setup does not fit a workload.
    """
    jobs: list[tuple[int, Job]] = []
    timings: list[Callable[[], tuple[Counts, list[OnMachine]]]] = []
    ceilings = [{setup: ceiling_setup(workload, setup) for setup in setups} for workload in workloads]
    for number, workload in enumerate(workloads):
        wanted = [found for found in ceilings[number].values() if found is not None]
        if machines:
            plan_jobs(workload, setups)  # refuses what does not fit
            timings += [partial(_time, workload, setup, machines, conditions) for setup in setups]
        jobs += [(number, job) for job in plan_jobs(workload, wanted if machines else [*setups, *wanted])]
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
    for workload, counted, best in zip(workloads, counts, ceilings, strict=True):
        for setup in setups:
            ceiling = best[setup]
            of_best = None if ceiling is None else counted[ceiling]
            if not machines:
                rows.append(result_row(workload, setup, counted[setup], best=of_best))
                continue
            own, on = next(in_order).result()
            rows += [result_row(workload, setup, own, best=of_best, on=one) for one in on]
    return rows


def _time(
    workload: Workload,
    setup: Setup,
    machines: Sequence[Machine],
    conditions: Callable[[Setup], Conditions] | None,
) -> tuple[Counts, list[OnMachine]]:
    """One replay, and its seconds on every machine."""
    replayed = replay(workload, setup, record=True)
    how = conditions(setup) if conditions else Conditions(execution=default_execution(setup))
    on = []
    for machine in machines:
        try:
            timed = time_replay(workload, setup, replayed, machine, how)
        except DoesNotFit:
            timed = None
        on.append(OnMachine.of(machine, how, timed))
    return replayed.counts, on
