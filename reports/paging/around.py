"""Read pieces of a mapped file that RAM does not hold, and see what the kernel reads for them.

It needs Linux, and root: the disk's read-ahead is set to each of several sizes, and back.
"""

from __future__ import annotations

import argparse
import csv
import mmap
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from native_bridge import page_cache
from reports.paging.measure import number_of, read_ahead

READ_AHEAD_KIB = (64, 128, 512)  # of the disk; a file that is said to be read in order has twice as much
PIECES_KIB = (16, 64, 100, 144, 200, 272, 384, 544, 1024, 2176, 4096, 6144)
MOST = 40  # pieces of a size
SPARE_WINDOWS = 6  # between two pieces, so that neither is read with the other


class Around(NamedTuple):
    """What was read for pieces of one size. window_bytes: of a page fault. read_bytes: of one piece, in the mean."""

    window_bytes: int
    piece_bytes: int
    pieces: int
    read_bytes: int


def measure(file: Path, *, device: str) -> Iterator[Around]:
    """Every size of piece with every read-ahead. file: of 1 GiB or more."""
    for kib in READ_AHEAD_KIB:
        with read_ahead(device, kib):
            for piece_kib in PIECES_KIB:
                yield _pieces(file, 2 * kib << 10, piece_kib << 10)


def _pieces(file: Path, window_bytes: int, piece_bytes: int) -> Around:
    apart = (piece_bytes + SPARE_WINDOWS * window_bytes) // mmap.PAGESIZE * mmap.PAGESIZE
    size_bytes = file.stat().st_size
    chance = random.Random(piece_bytes)
    pages = window_bytes // mmap.PAGESIZE
    starts = [start + chance.randrange(pages) * mmap.PAGESIZE for start in range(apart, size_bytes - 2 * apart, apart)][
        :MOST
    ]
    chance.shuffle(starts)
    page_cache.drop([file])
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), size_bytes, prot=mmap.PROT_READ) as mapped:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        before = number_of(os.getpid(), "io", "read_bytes")
        for start in starts:
            for page in range(start, start + piece_bytes, mmap.PAGESIZE):
                mapped[page]
        read_bytes = number_of(os.getpid(), "io", "read_bytes") - before
    return Around(window_bytes, piece_bytes, len(starts), read_bytes // len(starts))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", type=Path, required=True, help="a file of 1 GiB or more, which is only read")
    parser.add_argument("--device", required=True, help="its disk, such as vda")
    parser.add_argument("--out", type=Path, required=True, help="the table, such as data/paging/around.csv")
    asked = parser.parse_args()
    with asked.out.open("w", encoding="utf-8", newline="") as table:
        writer = csv.writer(table, lineterminator="\n")
        writer.writerow(Around._fields)
        writer.writerows(measure(asked.file, device=asked.device))


if __name__ == "__main__":
    main()
