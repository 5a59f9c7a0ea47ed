"""Where passes run: the seam between a sweep and the threads of this machine, or many machines."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, NamedTuple

from flashmoe_sim.residency.workload import Workload


class Workers(NamedTuple):
    """An executor, and how a workload comes to its workers.

    bring: called once for each workload; gives what `executor.submit` takes in its place, such as a handle that the
    executor turns into the workload where a pass runs. Threads take the workload itself.
    """

    executor: Executor
    bring: Callable[[Workload], Any]


OpenWorkers = Callable[[], AbstractContextManager[Workers]]


def threads(count: int | None = None) -> OpenWorkers:
    """Threads of this process, as many as there are cores if not given; the kernels run side by side in them."""
    return partial(_threads, count or os.cpu_count())


@contextmanager
def _threads(count: int | None) -> Iterator[Workers]:
    pool = ThreadPoolExecutor(count)
    try:
        yield Workers(pool, lambda workload: workload)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # a kernel cannot be interrupted, and nobody waits for it
