"""File locks, which Python has no module for on Windows: there, nothing is locked."""

from __future__ import annotations

from typing import Any

from flashmoe_sim.io.errors import Unsupported

fcntl: Any
try:
    import fcntl
except ImportError:
    fcntl = None


def has_locks() -> bool:
    """Whether this system has file locks: all but Windows."""
    return fcntl is not None


def check_has_locks(what: str) -> None:
    """Raise BadInput if this system lacks what Linux and macOS have."""
    if not has_locks():
        raise Unsupported(f"{what}: needs Linux or macOS", advice="on Windows, run it in WSL")


def flock(descriptor: int, *, shared: bool = False, wait: bool = True) -> None:
    """Lock an open file or folder until it is closed or its process ends.

    Raises BlockingIOError if another process has locked it, without `wait`; another OSError if there are no locks here.
    """
    if fcntl is None:
        raise OSError("no file locks on this system")
    fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))


def unlock(descriptor: int) -> None:
    """Release a lock; nothing where there are none."""
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
