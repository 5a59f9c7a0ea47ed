"""The rate at which page faults read a mapped file, as an engine does that computes from it where it lies."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.machines.machine import REFERENCE_BYTES
from native_bridge.probe.estimate import ROUNDS, Estimate, estimate
from native_bridge.probe.own_reads import PAGE_BYTES, bytes_in_threads, drop_pages

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
