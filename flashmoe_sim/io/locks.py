"""File locks: `flock` of Linux and macOS, `LockFileEx` of Windows.

A ledger needs shared locks that leave the content to others. For shared locks on Windows portalocker needs pywin32, and
it locks the first 64 KiB, which nobody else may then write; filelock and `msvcrt.locking` have exclusive locks only.
"""

from __future__ import annotations

import ctypes
import os
import time
from functools import cache
from pathlib import Path
from typing import Any

from flashmoe_sim.io.errors import Unsupported

fcntl: Any
try:
    import fcntl
except ImportError:
    fcntl = None

POSIX = fcntl is not None  # else Windows, which opens no folders and renames no open files
# Windows denies others the bytes that are locked, so they are behind the end of any file.
_FILE, _FOLDER = 1 << 62, (1 << 62) + 1
_EXCLUSIVE, _AT_ONCE = 2, 1  # flags of LockFileEx
_HELD = (33, 997)  # its errors if another has the lock
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.001, 0.05
_ctypes: Any = ctypes  # whose types depend on the system


class _Overlapped(ctypes.Structure):
    _fields_ = (
        ("internal", ctypes.c_size_t),
        ("internal_high", ctypes.c_size_t),
        ("offset", ctypes.c_uint32),
        ("offset_high", ctypes.c_uint32),
        ("event", ctypes.c_void_p),
    )


def check_posix(what: str) -> None:
    """Raise BadInput if this system lacks what Linux and macOS have."""
    if not POSIX:
        raise Unsupported(f"{what}: needs Linux or macOS", advice="on Windows, run it in WSL")


def open_folder(folder: Path, *, inside: Path) -> int:
    """A descriptor to lock a folder with; on Windows of the file `inside` it, which stands for it.

    Raises OSError if it cannot be opened.
    """
    return os.open(folder if POSIX else inside, os.O_RDONLY)


def flock(descriptor: int, *, shared: bool = False, wait: bool = True, of_folder: bool = False) -> None:
    """Lock an open file until it is closed or its process ends; of_folder: what `open_folder` opened.

    Raises BlockingIOError if another process has locked it, without `wait`; another OSError if there are no locks here.
    """
    if POSIX:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
        return
    unlock(descriptor, of_folder=of_folder)  # as flock does to change a lock, which would wait for itself
    pause_s = _FIRST_PAUSE_S
    while error := _lock_byte(descriptor, shared=shared, of_folder=of_folder):
        if error not in _HELD:
            raise OSError(f"cannot be locked (Windows error {error})")
        if not wait:
            raise BlockingIOError("locked by another process")
        time.sleep(pause_s)  # rather than in LockFileEx, which Ctrl-C does not end
        pause_s = min(2 * pause_s, _LAST_PAUSE_S)


def unlock(descriptor: int, *, of_folder: bool = False) -> None:
    """Release a lock; nothing if there is none."""
    if POSIX:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        return
    _, unlock_file = _functions()
    unlock_file(_handle(descriptor), 0, 1, 0, ctypes.byref(_place(of_folder)))


def _lock_byte(descriptor: int, *, shared: bool, of_folder: bool) -> int:
    """Lock a byte of a file on Windows; return the number of the error, 0 for none."""
    lock_file, _ = _functions()
    flags = _AT_ONCE | (0 if shared else _EXCLUSIVE)
    done = lock_file(_handle(descriptor), flags, 0, 1, 0, ctypes.byref(_place(of_folder)))
    return 0 if done else _ctypes.get_last_error()


def _place(of_folder: bool) -> _Overlapped:
    high, low = divmod(_FOLDER if of_folder else _FILE, 1 << 32)
    return _Overlapped(0, 0, low, high, None)


def _handle(descriptor: int) -> ctypes.c_void_p:
    import msvcrt

    module: Any = msvcrt
    return ctypes.c_void_p(module.get_osfhandle(descriptor))


@cache
def _functions() -> tuple[Any, Any]:
    """LockFileEx and UnlockFileEx."""
    kernel = _ctypes.WinDLL("kernel32", use_last_error=True)
    return kernel.LockFileEx, kernel.UnlockFileEx
