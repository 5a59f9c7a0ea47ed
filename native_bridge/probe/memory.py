"""The rates of memory copies, between buffers and from the page cache, and of getting new memory."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from native_bridge.probe.estimate import ROUNDS, Estimate, estimate
from native_bridge.probe.own_reads import OpenFile, bytes_in_threads, open_cached, read_for

MOST_BYTES = 1 << 30  # beyond the last-level cache of nearly every machine
CACHED_READ_BYTES = 1 << 20
STEP_BYTES = 8 << 20
LANES = 4  # reads in flight, each into its own memory
Pair = tuple[NDArray[np.uint8], NDArray[np.uint8]]


@dataclass(frozen=True)
class MemoryFound:
    """GB/s of bytes copied, each of which is read and written.

    one, together: numpy's copies with one thread and with `threads`. from_cache: reads of a cached file, with
    `threads`. first_touch: how fast each of four threads gets memory that was never written, by writing a byte to each
    page. None: there was no time. buffer_bytes: what was copied from; cached_bytes: how much of a file was read.
    """

    threads: int
    buffer_bytes: int
    cached_bytes: int
    one: Estimate | None
    together: Estimate | None
    from_cache: Estimate | None
    first_touch: Estimate | None


def measure_memory(
    path: Path,
    *,
    threads: int,
    available_bytes: int,
    until: float,
    tell: Callable[[str], None],
    most_bytes: int = MOST_BYTES,
) -> MemoryFound:
    """Copy buffers, read a file from the page cache and touch new memory, in five interleaved rounds.

    path: the file; as much of it as a buffer has is read into the cache first. Buffers take a quarter of
    `available_bytes` at most. until: the deadline, on time.monotonic; half of the time goes to the measurement, so that
    buffers are smaller where memory is slow to get.
    """
    started = time.monotonic()
    quarter_s = (until - started) / 4
    tell("memory")
    pairs = _pairs(min(most_bytes, available_bytes // 8), threads, until=started + quarter_s)
    buffer_bytes = sum(len(source) for source, _ in pairs)
    one, together, from_cache, first_touch = [], [], [], []
    with open_cached(path) as whole:
        cached_bytes = _read_start(whole, buffer_bytes, until=started + 2 * quarter_s)
        cached = whole._replace(size_bytes=cached_bytes)
        read_bytes = min(CACHED_READ_BYTES, cached_bytes)
        for number in range(ROUNDS):
            slice_s = (until - time.monotonic()) / (ROUNDS - number) / 4
            if slice_s <= 0 or not pairs or not cached_bytes:
                break
            tell(f"memory, round {number + 1} of {ROUNDS}")
            one.append(_copy_for(pairs, threads=1, seconds=slice_s))
            together.append(_copy_for(pairs, threads=threads, seconds=slice_s))
            end = time.monotonic() + slice_s
            done, taken_s = read_for(
                cached, size_bytes=read_bytes, depth=threads, until=end, seed=number, dropped=False
            )
            from_cache.append(done / taken_s / 1e9)
            first_touch.append(_touch_for(seconds=slice_s))
    found = [estimate(rates) if rates else None for rates in (one, together, from_cache, first_touch)]
    return MemoryFound(threads, buffer_bytes, cached_bytes, *found)


def _pairs(most_bytes: int, threads: int, *, until: float) -> list[Pair]:
    """Buffers to copy from and to, in memory, at least one pair for each thread; none if there is no time."""
    step_bytes = max(min(STEP_BYTES, most_bytes // threads), 1)
    pairs: list[Pair] = []
    while time.monotonic() < until and len(pairs) * step_bytes < most_bytes:
        pairs.append((np.ones(step_bytes, np.uint8), np.ones(step_bytes, np.uint8)))  # zeros would not be allocated yet
    return pairs if len(pairs) >= threads else []


def _read_start(file: OpenFile, most_bytes: int, *, until: float) -> int:
    """Bring the start of a file into the page cache; returns how much of it."""
    most_bytes = min(most_bytes, file.size_bytes)
    done = 0
    with mmap.mmap(-1, STEP_BYTES) as buffer:
        while done < most_bytes and time.monotonic() < until:
            done += os.preadv(file.descriptor, [buffer], done)
    return min(done, most_bytes)


def _copy_for(pairs: Sequence[Pair], *, threads: int, seconds: float) -> float:
    """GB/s of copies over all buffers, repeated for some seconds, each thread with its own buffers."""

    def copies(thread: int) -> Iterator[int]:
        for source, target in cycle(pairs[thread::threads]):
            np.copyto(target, source)
            yield len(source)

    copied_bytes, taken_s = bytes_in_threads(copies, threads, until=time.monotonic() + seconds)
    return copied_bytes / taken_s / 1e9


def _touch_for(*, seconds: float) -> float:
    """GB/s at which each of LANES threads gets new memory: the system clears every page that is written to."""

    def touches(_: int) -> Iterator[int]:
        while True:
            with mmap.mmap(-1, STEP_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as new:
                pages = np.frombuffer(new, np.uint8)[:: mmap.PAGESIZE]
                pages[:] = 1
                del pages  # they keep the mapping open
            yield STEP_BYTES

    touched_bytes, taken_s = bytes_in_threads(touches, LANES, until=time.monotonic() + seconds)
    return touched_bytes / LANES / taken_s / 1e9
