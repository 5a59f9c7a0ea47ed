"""A folder to measure in: checked first, left as it was found."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from flashmoe_sim.io.errors import Missing, OutOfRange, TooLarge, Unusable
from flashmoe_sim.io.sizes import size
from native_bridge.probe.own_reads import drop_pages, keep_out_of_cache
from native_bridge.process import sigterm_raises

BLOCK_BYTES = 4 << 20
SYNC_BYTES = 32 << 20
PREFIX = ".flashmoe-probe-"


@contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """A hidden folder in `folder`, removed with its content at the end, on any error, Ctrl-C or SIGTERM.

    Raises BadInput if `folder` is missing, is not a folder, or cannot be written to.
    """
    if not folder.exists():
        raise Missing(f"{folder}: no such folder; give one on the disk that experts will be read from")
    if not folder.is_dir():
        raise Unusable(f"{folder}: is not a folder; give one on the disk that experts will be read from")
    with sigterm_raises():
        try:
            place = Path(tempfile.mkdtemp(prefix=PREFIX, dir=folder))
        except OSError as error:
            raise Unusable(f"{folder}: cannot be written in ({error.strerror or error}); give another folder") from None
        try:
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)


def leftovers(folder: Path) -> list[Path]:
    """What killed probes have left in a folder, or running probes are writing there."""
    return sorted(folder.glob(f"{PREFIX}*"))


def file_bytes(folder: Path, *, least_bytes: int, most_bytes: int) -> int:
    """The size of the file to write: as allowed, but at most half of the free space.

    Raises BadInput if that is less than `least_bytes`.
    """
    if most_bytes < least_bytes:
        raise OutOfRange(f"--max-bytes {size(most_bytes)}: too few; these reads need a file of {size(least_bytes)}")
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes // 2 < least_bytes:
        raise TooLarge(
            f"{folder}: {size(free_bytes)} free, of which a probe takes half at most; these reads need a file of "
            f"{size(least_bytes)}; free some, or give another folder"
        )
    return min(most_bytes, free_bytes // 2) // least_bytes * least_bytes


def write_file(
    path: Path, *, size_bytes: int, least_bytes: int, until: float, latest: float, tell: Callable[[str], None]
) -> tuple[int, float]:
    """Write an incompressible file; return its bytes and how many per second reached the device.

    It ends early at `until` (on time.monotonic) if it has `least_bytes` by then, and else when it has them. Every
    32 MiB are forced out, so that no more than those are left to wait for. Raises BadInput if they do not fit, or
    less than `least_bytes` were written at `latest`.
    """
    random = np.random.default_rng()
    written, started = 0, time.monotonic()
    try:
        with path.open("wb", buffering=0) as file:
            keep_out_of_cache(file.fileno())
            while written < size_bytes and time.monotonic() < (until if written >= least_bytes else latest):
                block = random.bytes(min(BLOCK_BYTES, size_bytes - written))
                done = 0
                while done < len(block):
                    done += file.write(block[done:])
                written += done
                if written % SYNC_BYTES == 0:
                    os.fsync(file.fileno())
                    tell(f"writing, {size(written)}")
            os.fsync(file.fileno())
            drop_pages(file.fileno())
    except OSError as error:
        raise Unusable(
            f"{path.parents[1]}: cannot hold a file of {size(size_bytes)}: {error.strerror or error} after "
            f"{size(written)}; free some, or give a smaller --max-bytes; nothing was left behind"
        ) from None
    if written < least_bytes:
        raise OutOfRange(
            f"{path.parents[1]}: only {size(written)} could be written in time, and these reads need a file of "
            f"{size(least_bytes)}; give more --seconds"
        )
    return written, written / (time.monotonic() - started)
