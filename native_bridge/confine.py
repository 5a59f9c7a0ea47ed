"""A cgroup that limits the memory of a child, page cache included, if we may create one."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")


@contextmanager
def confined(limit_bytes: int) -> Iterator[Path | None]:
    """A cgroup that may hold this many bytes, for the time of the block; None if the system allows none.

    Under cgroup v1 it is created within our own. Under v2 a group with processes cannot be divided, so it is created
    beside our own, which requires that we own that part of the tree, as in a login session of systemd.
    """
    group = _make(limit_bytes)
    try:
        yield group
    finally:
        if group is not None:
            for _ in range(50):
                with suppress(OSError):
                    group.rmdir()
                    break
                time.sleep(0.02)  # it is busy until the last process has exited


def _make(limit_bytes: int) -> Path | None:
    for parent, limit in _places():
        group = parent / f"flashmoe-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / limit).write_text(str(limit_bytes))
        except OSError:
            with suppress(OSError):
                group.rmdir()
            continue
        return group
    return None


def _places() -> list[tuple[Path, str]]:
    """Where a group may be created, and the name of the file with its limit."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    places = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            places.append((ROOT / "memory" / path.lstrip("/"), "memory.limit_in_bytes"))
        elif controllers == "" and (ROOT / "cgroup.controllers").exists():
            places.append(((ROOT / path.lstrip("/")).parent, "memory.max"))
    return places
