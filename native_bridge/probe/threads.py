"""The same work in several threads for some time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator


def bytes_in_threads(work: Callable[[int], Iterator[int]], threads: int, *, until: float) -> tuple[int, float]:
    """Bytes done by all threads, and the seconds they took.

    work: of a thread's number; does a piece and yields its bytes, again and again. until: the deadline, on
    time.monotonic, or if all work is done; the piece in hand is done first, so that each thread does one at least.
    Raises what a thread raised, after all have ended.
    """
    done_bytes, stop = [0] * threads, threading.Event()
    failed: list[Exception] = []

    def run(thread: int) -> None:
        try:
            for piece_bytes in work(thread):
                done_bytes[thread] += piece_bytes
                if stop.is_set() or time.monotonic() >= until:
                    return
        except Exception as error:
            failed.append(error)
            stop.set()

    workers = [threading.Thread(target=run, args=(thread,), daemon=True) for thread in range(threads)]
    started = time.monotonic()
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:  # Ctrl-C comes here; nothing may read on while files are closed and removed
        stop.set()
        for worker in workers:
            if worker.is_alive():
                worker.join()
    if failed:
        raise failed[0]
    return sum(done_bytes), time.monotonic() - started
