"""The rate of storage reads, by the size of a read and the reads in flight."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.errors import OutOfRange
from flashmoe_sim.machines.machine import REFERENCE_BYTES
from native_bridge.probe.estimate import ROUNDS, Estimate, estimate
from native_bridge.probe.fio import LEAST_READS_S, START_S, fio_reads
from native_bridge.probe.own_reads import (
    PAGE_BYTES,
    Access,
    OpenFile,
    bytes_in_threads,
    cached_share,
    drop_pages,
    open_cached,
    open_past_cache,
    read_for,
)

DEPTHS = (1, 2, 4, 8)
SIZES = (64 << 10, 256 << 10, 1 << 20, REFERENCE_BYTES)
MOST_SIZES = 6
EVIDENTLY_CACHED, PARTLY_CACHED = 0.5, 0.05

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Point:
    """Reads of one size with a number of them in flight: GB/s of all together, and their time in s."""

    size_bytes: int
    depth: int
    gb_s: Estimate


@dataclass(frozen=True)
class StorageFound:
    """The measurements of storage.

    how: by what. access: how the page cache was kept out. cached_share: of small reads, those as quick as from the page
    cache; None if there was no time to see. request_us: what a read of the smallest size takes beyond its bytes.
    """

    points: tuple[Point, ...]
    how: str
    access: Access
    cached_share: float | None
    request_us: Estimate
    notes: tuple[str, ...]

    @property
    def is_page_cache(self) -> bool:
        """Whether the measurements are evidently of memory, not of a device."""
        return self.cached_share is not None and self.cached_share >= EVIDENTLY_CACHED

    @property
    def condition(self) -> str:
        if self.is_page_cache:
            return f"{self.access}; evidently the page cache or memory, not a device"
        return "buffered, the file's pages dropped before" if self.access == "buffered" else self.access


def sizes_of(model: ModelGeometry) -> tuple[int, ...]:
    """The read sizes of a model's expert: each tensor family whole, and in the chunks of io-split 4; and 4 MiB.

    Rounded up to pages, as direct reads have to be; if there are many, those of the first layers.
    """
    found: dict[int, None] = {}
    for layer in model.layers.values():
        for family_bytes in layer.family_bytes.values():
            found[_whole_pages(family_bytes)] = None
            if family_bytes % (4 * PAGE_BYTES) == 0 and family_bytes > 4 * PAGE_BYTES:
                found[_whole_pages(family_bytes / 4)] = None
    return tuple(sorted({*list(found)[: MOST_SIZES - 1], REFERENCE_BYTES}))


def sizes_of_expert(expert_bytes: int) -> tuple[int, ...]:
    """Reads of one expert in one piece, and of 4 MiB. Raises BadInput for less than a byte or more than 1 GiB."""
    if not 1 <= expert_bytes <= 1 << 30:
        raise OutOfRange(f"--expert-bytes {expert_bytes}: expected 1 B to 1 GiB")
    return tuple(sorted({_whole_pages(expert_bytes), REFERENCE_BYTES}))


def _whole_pages(size_bytes: float) -> int:
    return -int(-size_bytes // PAGE_BYTES) * PAGE_BYTES


def measure_storage(path: Path, sizes: Sequence[int], *, fio: str | None, until: float, tell: Tell) -> StorageFound:
    """Read a file at every size and depth in five rounds, each round over all of them in another order.

    fio: its version, to read with it; else this process reads. until: the end, of time.monotonic; what was not measured
    by then is left out, and a note says so. Raises BadInput if nothing was, and SimError if fio fails.
    """
    grid = list(product(sizes, DEPTHS))
    found: dict[tuple[int, int], list[float]] = {point: [] for point in grid}
    notes = []
    with open_past_cache(path) as past, open_cached(path) as cached:
        share = cached_share(past, cached, until=until)
        rounds = ROUNDS
        if fio is not None and past.access == "buffered":
            notes.append("fio was not used: the file system refuses direct reads, and fio would measure the page cache")
            fio = None
        if fio is not None:
            rounds = min(ROUNDS, int((until - time.monotonic()) / (len(grid) * (START_S + LEAST_READS_S))))
            if rounds < 1:
                notes.append("fio was not used: it takes a third of a second for each point; give more --seconds")
                fio, rounds = None, ROUNDS
        for number in range(rounds):
            order = np.random.default_rng(number).permutation(len(grid))
            for place, index in enumerate(order):
                points_left = (rounds - number) * len(grid) - place
                each_s = (until - time.monotonic()) / points_left
                if each_s <= 0:
                    break
                tell(f"storage, round {number + 1} of {rounds}")
                size_bytes, depth = grid[index]
                found[grid[index]].append(
                    _gb_s(past, path, size_bytes, depth, fio=fio, seconds=each_s, seed=number * len(grid) + place)
                )
    measured = {point: rates for point, rates in found.items() if rates}
    if not measured:
        raise OutOfRange("no read ended in time; give more --seconds")
    if missing := len(grid) - len(measured):
        notes.append(f"{missing} of {len(grid)} sizes and depths were not reached in time; give more --seconds")
    if (fewest := min(map(len, measured.values()))) < ROUNDS:
        notes.append(f"{fewest} of {ROUNDS} rounds of reads in the time there was; give more --seconds")
    if share is not None and share >= EVIDENTLY_CACHED:
        notes.append("storage was evidently the page cache or memory: give a --folder on the disk with the experts")
    elif share is not None and share >= PARTLY_CACHED:
        notes.append(f"{share:.0%} of the small reads were as quick as from the page cache")
    points = tuple(Point(*point, estimate(rates)) for point, rates in measured.items())
    by = f"fio {fio}, psync" if fio else "own reads in threads"
    return StorageFound(points, by, past.access, share, _request_us(measured), tuple(notes))


def _gb_s(
    past: OpenFile, path: Path, size_bytes: int, depth: int, *, fio: str | None, seconds: float, seed: int
) -> float:
    if fio is not None:
        return fio_reads(path, size_bytes=size_bytes, depth=depth, seconds=max(seconds - START_S, LEAST_READS_S)).gb_s
    read_bytes, taken_s = read_for(
        past, size_bytes=size_bytes, depth=depth, until=time.monotonic() + seconds, seed=seed
    )
    return read_bytes / taken_s / 1e9


def _request_us(measured: dict[tuple[int, int], list[float]]) -> Estimate:
    """The time of the smallest read, alone, beyond its bytes at the best rate of its round."""
    smallest, shallowest = min(measured)
    rounds = []
    for number, gb_s in enumerate(measured[smallest, shallowest]):
        best = max(rates[number] for rates in measured.values() if number < len(rates))
        rounds.append(max(smallest / (gb_s * 1e3) - smallest / (best * 1e3), 0.0))
    return estimate(rounds)


LINE_BYTES = 64  # a byte of each is touched


def largest_piece(sizes: Iterable[int]) -> int:
    """The largest of the sizes beside the reference of 4 MiB, in which a mapped file is touched."""
    return max((size for size in sizes if size != REFERENCE_BYTES), default=REFERENCE_BYTES)


def measure_faults(path: Path, sizes: Sequence[int], *, threads: int, until: float) -> Estimate | None:
    """GB/s of the bytes wanted, with `threads` that each touch their part of the same pieces, at random places.

    No place is touched twice, and pages around them that the system reads too are not counted. Linux is told that the
    file is read in order, as llama.cpp tells it. None if there was no time, or no place for a piece of each round.
    """
    piece_bytes = largest_piece(sizes)
    part_bytes = max(piece_bytes // threads // PAGE_BYTES, 1) * PAGE_BYTES
    places = np.random.default_rng(0).permutation(path.stat().st_size // piece_bytes) * piece_bytes
    rates = []
    for number, of_round in enumerate(np.array_split(places, ROUNDS)):
        left_s = until - time.monotonic()
        if left_s <= 0 or not len(of_round):
            break
        rates.append(_round_gb_s(path, of_round, part_bytes, threads, time.monotonic() + left_s / (ROUNDS - number)))
    return estimate(rates) if rates else None


def _round_gb_s(path: Path, places: NDArray[np.int64], part_bytes: int, threads: int, until: float) -> float:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        drop_pages(descriptor)
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        content = np.frombuffer(mmap.mmap(descriptor, 0, prot=mmap.PROT_READ), np.uint8)  # unmapped with its last view
    finally:
        os.close(descriptor)

    def touched(thread: int) -> Iterator[int]:
        for place in places:
            start = int(place) + thread * part_bytes
            content[start : start + part_bytes : LINE_BYTES].max()
            yield part_bytes

    wanted_bytes, taken_s = bytes_in_threads(touched, threads, until=until)
    return wanted_bytes / taken_s / 1e9
