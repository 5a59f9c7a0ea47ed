"""Where passes run: the interface between a sweep and this machine's threads, or many machines."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from flashmoe_sim.io.errors import Conflict, OutOfRange, SimError
from flashmoe_sim.residency.workload import Workload

LOOK_S = 0.1


class Lost(SimError):
    """The workers are gone in the middle of a sweep; the known rows stay in its ledger."""


class Workers(NamedTuple):
    """Where jobs run, each on a workload.

    map: calls a function with each of these pairs; the number and the result of each, as they finish.
    batch_ms: short passes make a job together until they take about this long; 0 makes each a job.
    """

    map: Callable[[Callable[[Any, Workload], Any], Sequence[tuple[Any, Workload]]], Iterator[tuple[int, Any]]]
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
        yield Workers(partial(_mapped, pool))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # a kernel cannot be interrupted, and nobody waits for it


def _mapped(
    pool: ThreadPoolExecutor, run: Callable[[Any, Workload], Any], jobs: Sequence[tuple[Any, Workload]]
) -> Iterator[tuple[int, Any]]:
    numbers = {pool.submit(run, *job): number for number, job in enumerate(jobs)}
    done: SimpleQueue[Future[Any]] = SimpleQueue()
    for future in list(numbers):
        future.add_done_callback(done.put)
    while numbers:
        try:
            future = done.get(timeout=LOOK_S)
        except Empty:  # on Windows, Python hears a signal only between two waits
            continue
        yield numbers.pop(future), future.result()
