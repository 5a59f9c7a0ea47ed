"""Direct reads of a file, several in flight at a time, timed in this process."""

from __future__ import annotations

import mmap
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from statistics import median
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import Unusable

PAGE_BYTES = 4096
F_NOCACHE = 48  # fcntl.h of macOS
CHECKED_READS = 256
# As from malloc, for the runtime and fio. In huge pages the same reads can be twice as fast: fewer segments.
ORDINARY_PAGES = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS

Access = Literal["direct", "F_NOCACHE", "buffered"]


class OpenFile(NamedTuple):
    """A file open for reading, and how: past the page cache, or through it after dropping its pages."""

    descriptor: int
    access: Access
    size_bytes: int


@contextmanager
def open_past_cache(path: Path) -> Iterator[OpenFile]:
    """The file, open so that reads come from the device: O_DIRECT on Linux, F_NOCACHE on macOS.

    If the file system refuses O_DIRECT, buffered; `read_for` then drops the file's pages first.
    """
    descriptor, access = _opened(path)
    try:
        yield OpenFile(descriptor, access, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)


@contextmanager
def open_cached(path: Path) -> Iterator[OpenFile]:
    """The file, open for reading through the page cache."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield OpenFile(descriptor, "buffered", os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)


def _opened(path: Path) -> tuple[int, Access]:
    if sys.platform == "darwin":
        descriptor = os.open(path, os.O_RDONLY)
        _keep_out(descriptor)
        return descriptor, "F_NOCACHE"
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
        try:
            os.preadv(descriptor, [mmap.mmap(-1, PAGE_BYTES)], 0)  # some file systems refuse only here
            return descriptor, "direct"
        except OSError:
            os.close(descriptor)
    return os.open(path, os.O_RDONLY), "buffered"


def keep_out_of_cache(descriptor: int) -> None:
    """Have macOS keep what is written to a file out of the page cache: its reads would find it there."""
    if sys.platform == "darwin":
        _keep_out(descriptor)


def _keep_out(descriptor: int) -> None:
    import fcntl

    fcntl.fcntl(descriptor, F_NOCACHE, 1)


def drop_pages(descriptor: int) -> None:
    """Ask the system to drop a file's cached pages; Linux does so if nothing is unwritten."""
    if sys.platform == "linux":
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def read_for(
    reading: OpenFile, *, size_bytes: int, depth: int, until: float, seed: int, dropped: bool = True
) -> tuple[int, float]:
    """Read at random places with `depth` reads in flight until `until` (on time.monotonic).

    Each read starts at a multiple of its size; no place twice before all were read. If reads go through the page cache
    and `dropped`, the file's pages are dropped first, and it ends when every place was read.
    Returns the bytes read and the seconds it took, of at least one read of each thread if there are places enough.
    Raises BadInput if the file cannot be read.
    """
    places = np.random.default_rng(seed).permutation(reading.size_bytes // size_bytes) * size_bytes
    once = reading.access == "buffered" and dropped
    if once:
        drop_pages(reading.descriptor)
    numbers = count()

    def reads(thread: int) -> Iterator[int]:
        with mmap.mmap(-1, size_bytes, flags=ORDINARY_PAGES) as page_aligned:
            while (number := next(numbers)) < len(places) or not once:
                yield os.preadv(reading.descriptor, [page_aligned], int(places[number % len(places)]))

    try:
        return bytes_in_threads(reads, depth, until=until)
    except OSError as error:
        raise Unusable(f"the file that was written cannot be read ({error.strerror}); is the disk healthy?") from None


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


def cached_share(past: OpenFile, cached: OpenFile, *, until: float) -> float | None:
    """The share of small direct reads that are as quick as from the page cache, and so came from it or from memory.

    Of 4 KiB each, one in flight: a device takes many times as long for one as memory does. As quick means within twice
    the median time of the same reads, repeated, through the cache. None if there was no time.
    """
    pages = past.size_bytes // PAGE_BYTES
    places = np.random.default_rng(1).permutation(pages)[:CHECKED_READS] * PAGE_BYTES
    if past.access == "buffered":
        drop_pages(past.descriptor)
    times = _times(past.descriptor, places, until=until)
    _times(cached.descriptor, places, until=until)
    known = _times(cached.descriptor, places, until=until)
    if not known:
        return None
    quick = 2 * median(known)
    return sum(each <= quick for each in times) / len(times)


def _times(descriptor: int, places: NDArray[np.int64], *, until: float) -> list[float]:
    taken = []
    with mmap.mmap(-1, PAGE_BYTES) as page:
        for place in places:
            if time.monotonic() >= until:
                break
            started = time.perf_counter()
            os.preadv(descriptor, [page], int(place))
            taken.append(time.perf_counter() - started)
    return taken
