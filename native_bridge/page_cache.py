"""The page cache: read files into it, drop them, see how much of them it holds, and limit it for a child."""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from flashmoe_sim.io.errors import Unsupported, Unusable
from flashmoe_sim.io.files import unreadable

CHUNK_BYTES = 8 << 20
CGROUPS = Path("/sys/fs/cgroup")


def resident_bytes(files: Iterable[Path]) -> int:
    """Bytes of these files that are in the page cache, in whole pages, by mincore(2).

    Raises BadInput if a file cannot be read or the system does not support it.
    """
    return sum(_resident_pages(file) for file in files) * mmap.PAGESIZE


def warm(files: Iterable[Path]) -> None:
    """Read the files once, so that the page cache holds as much as fits. Raises BadInput if one cannot be read."""
    for file in files:
        try:
            with file.open("rb", buffering=0) as stream:
                while stream.read(CHUNK_BYTES):
                    pass
        except OSError as error:
            raise unreadable(file, error) from None


def drop(files: Iterable[Path]) -> None:
    """Ask the system to drop these files from the page cache, after writing unwritten pages to disk.

    Raises BadInput if a file cannot be read, or the system has no such call.
    """
    if not hasattr(os, "posix_fadvise"):
        raise Unsupported("--cache cold: this system cannot drop files from its page cache; use Linux, or --cache warm")
    for file in files:
        try:
            number = os.open(file, os.O_RDONLY)
            try:
                os.fsync(number)
                os.posix_fadvise(number, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(number)
        except OSError as error:
            raise unreadable(file, error) from None


def total_bytes(files: Iterable[Path]) -> int:
    """The total size of the files. Raises BadInput if one is missing."""
    try:
        return sum(file.stat().st_size for file in files)
    except OSError as error:
        raise Unusable(f"{error.filename}: {error.strerror}; expected a file of the sidecar") from None


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


def _resident_pages(file: Path) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    try:
        number = os.open(file, os.O_RDONLY)
    except OSError as error:
        raise unreadable(file, error) from None
    try:
        size = os.fstat(number).st_size
        if size == 0:
            return 0
        # Mapped by hand: Python's own mapping reveals its address only if it is writable.
        address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, number, 0)
        if address == ctypes.c_void_p(-1).value:
            raise Unusable(f"{file}: cannot be mapped ({os.strerror(ctypes.get_errno())})")
        try:
            pages = ctypes.create_string_buffer(-(-size // mmap.PAGESIZE))
            if libc.mincore(address, size, pages) != 0:
                raise Unusable(f"{file}: the system does not say what is cached ({os.strerror(ctypes.get_errno())})")
        finally:
            libc.munmap(address, size)
    finally:
        os.close(number)
    return sum(byte & 1 for byte in pages.raw)


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
            places.append((CGROUPS / "memory" / path.lstrip("/"), "memory.limit_in_bytes"))
        elif controllers == "" and (CGROUPS / "cgroup.controllers").exists():
            places.append(((CGROUPS / path.lstrip("/")).parent, "memory.max"))
    return places
