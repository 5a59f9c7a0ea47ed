"""Examples of hypothesis have no deadline, and repeat; `HYPOTHESIS_PROFILE=new` looks for others.

Each process does its linear algebra, which is small, in one thread: those of several wait for each other, spinning.
Garbage is collected rarely: going through thousands of tests and a compiler's objects again and again takes minutes.
"""

from __future__ import annotations

import gc
import os

import pytest
from hypothesis import settings

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when numpy is imported, also by processes of tests
settings.register_profile("repeated", deadline=None, derandomize=True)
settings.register_profile("new", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeated"))

# Between them they compile nearly all kernels, each test a few of its own.
COMPILING = ("tests.residency.test_every_size", "tests.timeline.test_twins", "tests.prefetchers.test_twins")

# One process predicts all published rows for these.
PREDICTING = ("tests.field.test_report", "tests.field.test_choosing", "tests.field.test_depth")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Several processes begin with different kernels, which else each would compile; the longest tests come next.

    pytest-xdist gives each process as many of the tests that follow one another.
    """
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if processes == 1:
        return
    compiling = [[item for item in items if module_of(item) == name] for name in COMPILING]
    predicting = [item for item in items if module_of(item) in PREDICTING]
    rest = [item for item in items if module_of(item) not in (*COMPILING, *PREDICTING)]
    rest.sort(key=lambda item: module_of(item).count("."))  # tests of the whole program are longest
    ordered = []
    for process in range(processes):
        turn = process % len(compiling)
        for part in (*compiling[turn:], *compiling[:turn]):
            ordered += share(part, process, processes)
        ordered += [*(predicting if process == 0 else []), *share(rest, process, processes)]
    items[:] = ordered


def share(tests: list[pytest.Item], process: int, processes: int) -> list[pytest.Item]:
    """As many tests for each process."""
    return tests[process * len(tests) // processes : (process + 1) * len(tests) // processes]


def module_of(item: pytest.Item) -> str:
    return item.module.__name__


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)
