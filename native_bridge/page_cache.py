"""The page cache: read files into it, drop them from it, and see how much of them is in it."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable
from pathlib import Path

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.io.files import unreadable

CHUNK_BYTES = 8 << 20


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
        raise BadInput("--cache cold: this system cannot drop files from its page cache; use Linux, or --cache warm")
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
        raise BadInput(f"{error.filename}: {error.strerror}; expected a file of the sidecar") from None


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
            raise BadInput(f"{file}: cannot be mapped ({os.strerror(ctypes.get_errno())})")
        try:
            pages = ctypes.create_string_buffer(-(-size // mmap.PAGESIZE))
            if libc.mincore(address, size, pages) != 0:
                raise BadInput(f"{file}: the system does not say what is cached ({os.strerror(ctypes.get_errno())})")
        finally:
            libc.munmap(address, size)
    finally:
        os.close(number)
    return sum(byte & 1 for byte in pages.raw)
