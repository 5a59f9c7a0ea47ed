"""Python as it is on Windows, as far as Linux allows: what is missing there is hidden, and files are refused alike.

Put the text into a `sitecustomize.py`, so that every child process is like that too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
HIDDEN = r'''
import fcntl, os, signal, struct, sys, types
import ctypes
import subprocess  # knows Windows by msvcrt

ofd_set, ofd_get = 37, 36  # F_OFD_SETLK, F_OFD_GETLK: locks of bytes that belong to an open file
get_flags = fcntl.F_GETFL
lock_call, read_lock, write_lock, no_lock = fcntl.fcntl, fcntl.F_RDLCK, fcntl.F_WRLCK, fcntl.F_UNLCK

for name in ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "readline", "curses", "colorama"):
    sys.modules[name] = None  # of colorama, which wants a real console of Windows, a bare installation has none
for name in (
    "pread preadv pwrite pwritev readv writev posix_fadvise posix_fallocate fork forkpty killpg getpgid getpgrp setsid "
    "sysconf confstr getuid geteuid getgid getegid sched_getaffinity fchmod fchown chown lchown mkfifo mknod sync "
    "getloadavg statvfs fstatvfs wait3 wait4 waitid nice fdatasync fchdir chroot O_DIRECT O_NOFOLLOW O_NONBLOCK "
    "O_DIRECTORY O_TMPFILE O_SYNC O_DSYNC O_NOCTTY"
).split():
    if hasattr(os, name):
        delattr(os, name)
for name in "SIGHUP SIGALRM SIGUSR1 SIGUSR2 SIGQUIT SIGPIPE SIGWINCH setitimer pthread_kill".split():
    if hasattr(signal, name):
        delattr(signal, name)

plain_open, plain_fsync, plain_close = os.open, os.fsync, os.close

def open_file(path, flags, *more, **named):
    if isinstance(path, (str, os.PathLike)) and os.path.isdir(path):
        raise PermissionError(13, "Permission denied", os.fspath(path))
    if flags & 3 == os.O_RDONLY and os.access(path, os.W_OK):
        flags |= os.O_RDWR  # on which an exclusive lock can be had, as on Windows
    return plain_open(path, flags, *more, **named)

def fsync(descriptor):
    if lock_call(descriptor, get_flags) & 3 == os.O_RDONLY:
        raise OSError(9, "Bad file descriptor")
    plain_fsync(descriptor)

def is_open(path):
    """Whether this process has a file open, or one in a folder."""
    path = os.path.abspath(os.fspath(path))
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue
        if target == path or target.startswith(path + "/"):
            return True
    return False

def unless_open(call):
    def checked(source, *more, **named):
        if "dir_fd" not in named and "src_dir_fd" not in named and not isinstance(source, int):
            for path in (source, *(one for one in more[:1] if isinstance(one, (str, os.PathLike)))):
                if is_open(path):
                    raise PermissionError(13, "The process cannot access the file", os.fspath(path))
        return call(source, *more, **named)
    return checked

os.open, os.fsync = open_file, fsync
for name in ("rename", "replace", "unlink", "remove", "rmdir"):
    setattr(os, name, unless_open(getattr(os, name)))
os.supports_dir_fd, os.supports_fd = set(), set()
import shutil, tempfile
shutil._use_fd_functions = False
tempfile.TemporaryFile = tempfile.NamedTemporaryFile

error = 0

def locked(kind, handle, place, command=ofd_set):
    number = getattr(handle, "value", handle)
    text = struct.pack("hhqqi4x", kind, os.SEEK_SET, place, 1, 0)
    return lock_call(number, command, text)

def place_of(overlapped):
    found = overlapped._obj
    return found.offset + (found.offset_high << 32)

def LockFileEx(handle, flags, reserved, low, high, overlapped):
    global error
    assert (flags & 1, reserved, low, high) == (1, 0, 1, 0)
    kind, place = write_lock if flags & 2 else read_lock, place_of(overlapped)
    try:
        if flags & 2 and lock_call(getattr(handle, "value", handle), get_flags) & 3 == os.O_RDONLY:
            if struct.unpack("hhqqi4x", locked(kind, handle, place, ofd_get))[0] != no_lock:
                raise BlockingIOError
            kind = read_lock
        locked(kind, handle, place)
    except BlockingIOError:
        error = 33
        return 0
    return 1

def UnlockFileEx(handle, reserved, low, high, overlapped):
    locked(no_lock, handle, place_of(overlapped))
    return 1

class WinDLL:
    def __init__(self, name, use_last_error=False):
        assert (name, use_last_error) == ("kernel32", True)
        self.LockFileEx, self.UnlockFileEx = LockFileEx, UnlockFileEx

ctypes.WinDLL, ctypes.get_last_error = WinDLL, lambda: error
sys.modules["msvcrt"] = types.ModuleType("msvcrt")
sys.modules["msvcrt"].get_osfhandle = lambda descriptor: descriptor

import warnings
warnings.filterwarnings("ignore", category=EncodingWarning)
warnings.filterwarnings("error", category=EncodingWarning, module=r"flashmoe_sim|native_bridge")
'''
RUN = """
import contextlib, io, json, sys
from native_bridge.cli.main import main
found = []
for words in json.loads(sys.argv[1]):
    out, error = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        code = main(words)
    found.append([code, out.getvalue(), error.getvalue()])
print(json.dumps(found))
"""


def run(
    code: str, *words: str, folder: Path, hidden: bool = True, stdin: bytes = b"", **variables: str
) -> subprocess.CompletedProcess[bytes]:
    """Run Python code, as on Windows if hidden, in a folder."""
    here = folder.parent / "as_on_windows"
    here.mkdir(exist_ok=True)
    (here / "sitecustomize.py").write_text(HIDDEN, encoding="utf-8")
    path = os.pathsep.join([*([str(here)] if hidden else []), str(ROOT)])
    environment = os.environ | {"PYTHONPATH": path, "COLUMNS": "80"} | variables
    flags = ["-X", "warn_default_encoding"] if hidden else []
    command = [sys.executable, *flags, "-c", code, *words]
    return subprocess.run(
        command, capture_output=True, check=False, cwd=folder, timeout=600, input=stdin, env=environment
    )


def sim_each(lines: Sequence[Sequence[str]], folder: Path, *, hidden: bool = True) -> list[Any]:
    """Exit code, stdout and stderr of each command line, one after another in one process."""
    done = run(RUN, json.dumps(lines), folder=folder, hidden=hidden)
    assert done.returncode == 0, done.stderr.decode()
    return list(json.loads(done.stdout.splitlines()[-1]))
