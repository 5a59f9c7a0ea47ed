"""Waiting for other threads, which Ctrl-C ends on Windows too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import TypeVar

T = TypeVar("T")
LOOK_S = 0.1


def as_done(futures: Iterable[Future[T]]) -> Iterator[Future[T]]:
    """The futures in the order in which they end.

    On Windows, Python hears a signal only between two waits, so each wait is short.
    """
    done: SimpleQueue[Future[T]] = SimpleQueue()
    waiting = 0
    for future in futures:
        waiting += 1
        future.add_done_callback(done.put)
    while waiting:
        try:
            yield done.get(timeout=LOOK_S)
        except Empty:
            continue
        waiting -= 1
