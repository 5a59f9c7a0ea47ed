"""`python -m reports.reliability`: does every fault again and writes the page; `--rounds N --json` prints a few rounds.

Linux only. `--fuzz SECONDS` feeds the doors of `tests.fuzz` instead, and writes the page with what came of that.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reports.reliability.faults import Faults
from reports.reliability.page import COLUMNS, DOORS, FAULTS, FUZZ, PAGE, markdown, read, write
from reports.reliability.processes import Asked, Reference, run

NEW_USER, NEW_MOUNTS, READ_ONLY, REMOUNT, PRIVATE, DETACH = 0x10000000, 0x20000, 1, 32, 0x44000, 2
DISK_BYTES = 2 << 20
C = ctypes.CDLL(None, use_errno=True)


def mounted(disk: Path) -> bool:
    """Whether a small disk could be mounted, seen by this process and its children alone."""
    disk.mkdir()
    if C.unshare(NEW_MOUNTS | (NEW_USER if os.getuid() else 0)) or C.mount(b"none", b"/", None, PRIVATE, None):
        return False
    return not C.mount(b"none", os.fsencode(disk), b"tmpfs", 0, f"size={DISK_BYTES}".encode())


def faults(scratch: Path, *, rounds: int) -> Iterator[dict[str, Any]]:
    """The rows of the report."""
    disk = scratch / "disk"

    def remount(only_read: bool) -> None:
        assert not C.mount(b"none", os.fsencode(disk), b"tmpfs", REMOUNT | (READ_ONLY if only_read else 0), None)

    has_disk = mounted(disk)
    trace, other = scratch / "trace.parquet", scratch / "other.parquet"
    assert run(["trace", "convert", "python-256", str(trace)]) == 0
    assert run(["trace", "convert", "cpp-256", str(other)]) == 0
    reference = Reference(Asked(str(trace)), scratch / "plain")
    yield from Faults(reference, scratch, disk=disk if has_disk else None, remount=remount).rows(rounds, trace, other)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m reports.reliability", description=__doc__)
    parser.add_argument("--rounds", type=int, default=120, metavar="N", help="of kill -9; others have a share of them")
    parser.add_argument("--json", action="store_true", help="print the figures, and leave the page")
    parser.add_argument("--fuzz", type=float, metavar="SECONDS", help="feed each door so long, and do no fault")
    asked = parser.parse_args()
    if asked.fuzz:
        feed(asked.fuzz)
        return
    os.environ.setdefault("MPLBACKEND", "agg")
    memory = Path("/dev/shm")
    scratch = Path(tempfile.mkdtemp(prefix="reliability-", dir=memory if os.access(memory, os.W_OK) else None))
    rows, begin = [], time.monotonic()
    try:
        for row in faults(scratch, rounds=asked.rounds):
            rows.append(row)
            print(f"reliability: {row}, {time.monotonic() - begin:.0f} s", file=sys.stderr)
    finally:
        C.umount2(os.fsencode(scratch / "disk"), DETACH)
        shutil.rmtree(scratch, ignore_errors=True)
    if asked.json:
        print(json.dumps(rows))
        return
    write(FAULTS, rows, COLUMNS)
    PAGE.write_text(markdown(read(FAULTS), read(FUZZ)))


def feed(seconds: float) -> None:
    """Feed every door so long, and put what came of it on the page."""
    command = [sys.executable, "-m", "tests.fuzz", "--all", "--seconds", str(seconds), "--json"]
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout
    write(FUZZ, [door | {"findings": len(door["findings"])} for door in json.loads(printed)], DOORS)
    PAGE.write_text(markdown(read(FAULTS), read(FUZZ)))


if __name__ == "__main__":
    main()
