"""Run a sweep: every setup over every workload, on all cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from flashmoe_sim.ceilings.optimum import ceiling_setup
from flashmoe_sim.residency.counts import Counts
from flashmoe_sim.residency.many import Job, plan_jobs
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.sweep.row import result_row


def sweep(
    workloads: Sequence[Workload],
    setups: Sequence[Setup],
    *,
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[dict[str, Any]]:
    """The rows of schema.RESULT_COLUMNS for every workload and setup, in that order.

    threads: by default as many as there are cores.
    progress: called with the number of finished jobs and of all jobs, first before any runs.
    Raises BadInput, before anything runs, where a setup does not fit a workload.
    """
    jobs: list[tuple[int, Job]] = []
    ceilings = [{setup: ceiling_setup(workload, setup) for setup in setups} for workload in workloads]
    for number, workload in enumerate(workloads):
        wanted = [*setups, *(found for found in ceilings[number].values() if found is not None)]
        jobs += [(number, job) for job in plan_jobs(workload, wanted)]
    counts: list[dict[Setup, Counts]] = [{} for _ in workloads]
    if progress:
        progress(0, len(jobs))
    pool = ThreadPoolExecutor(threads or os.cpu_count())
    try:
        for workload in workloads:  # hashed for the rows' ids while the replays run
            pool.submit(getattr, workload.trace, "content_id")
        running = {pool.submit(job): number for number, job in jobs}
        for done, future in enumerate(as_completed(running), start=1):
            counted = counts[running[future]]
            for setup, part in future.result().items():
                counted[setup] = counted[setup].joined(part) if setup in counted else part
            if progress:
                progress(done, len(jobs))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    rows = []
    for workload, counted, best in zip(workloads, counts, ceilings, strict=True):
        for setup in setups:
            ceiling = best[setup]
            rows.append(result_row(workload, setup, counted[setup], best=None if ceiling is None else counted[ceiling]))
    return rows
