"""Where passes run: the interface between a sweep and this machine's threads, or many machines."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, NamedTuple

from flashmoe_sim.io.errors import Conflict, OutOfRange, SimError
from flashmoe_sim.residency.workload import Workload


class Lost(SimError):
    """The workers are gone in the middle of a sweep; the known rows stay in its ledger."""


class Workers(NamedTuple):
    """An executor, and how a workload comes to its workers.

    bring: called once for each workload; returns what to pass to `executor.submit` in its place, such as a handle that
    the executor turns into the workload where a pass runs. Threads use the workload itself.
    batch_ms: short passes are sent together until they take about this long; 0 sends each alone.
    """

    executor: Executor
    bring: Callable[[Workload], Any]
    batch_ms: float = 0


OpenWorkers = Callable[[], AbstractContextManager[Workers]]


def run_on(*, threads: int | None = None, cluster: str | None = None) -> OpenWorkers:
    """Threads of this process, or the cluster at an address, see `on_cluster`.

    Raises BadInput for both, and for an address that cannot be used.
    """
    if cluster is None:
        return in_threads(threads)
    if threads is not None:
        raise Conflict(
            "threads and a cluster: each worker of a cluster has its own number of threads; give one of them"
        )
    from flashmoe_sim.sweep.cluster import on_cluster

    return on_cluster(cluster)


def in_threads(count: int | None = None) -> OpenWorkers:
    """Threads of this process, by default as many as there are cores; kernels run in them in parallel.

    Raises BadInput for fewer than one.
    """
    if count is not None and count < 1:
        raise OutOfRange(f"threads {count}: expected at least 1")
    return partial(_threads, count or os.cpu_count())


@contextmanager
def _threads(count: int | None) -> Iterator[Workers]:
    pool = ThreadPoolExecutor(count)
    try:
        yield Workers(pool, lambda workload: workload)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # a kernel cannot be interrupted, and nobody waits for it
