"""Writing a file all at once (it appears complete, or not at all), and temporary folders."""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from flashmoe_sim.io.errors import Exists, Malformed, SimError, Unusable
from flashmoe_sim.io.locks import POSIX, flock

_parts: set[Path] = set()  # files that are being written
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_DEVICE = re.compile(r"(?:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9¹²³])\s*(?:\..*)?", re.IGNORECASE | re.DOTALL)
_NO_NAME = re.compile(r'[<>:"|?*\x00-\x1f]|[. ]\Z')
_PAUSES_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1)
_UNLOCKED_S = 60  # within which a part that nobody has open may be about to be renamed


@contextmanager
def atomic_writer(path: Path, *, force: bool = False) -> Iterator[IO[bytes]]:
    """A binary stream whose content becomes the file `path` when the block ends without an error.

    Until then it is a hidden file beside `path`, removed on any error or interruption, or by the next writer of `path`
    if the process was killed. The mode of a replaced file is kept. Without force nothing is replaced, not even a file
    that appeared in the meantime.
    Raises BadInput if `path` exists without force, is not a regular file, or cannot be written.
    """
    refuse_existing(path, force=force)
    part = None
    try:
        path.parent.stat()  # `none/../file` names nothing, though it resolves to a file
        target = path.resolve()
        _remove_left_over(target)
        part = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
        _parts.add(part)
        with part.open("xb") as stream:  # nobody can have put a link there
            lock(stream.fileno())
            if force:
                keep_mode(target, stream.fileno())
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
            if POSIX:  # while it is locked, nobody takes it for a left-over
                _put(part, target, force=force)
        if not POSIX:  # Windows renames no open file
            _put(part, target, force=force)
        sync_folder(target.parent)
    except FileExistsError:
        raise Exists(f"{path}: exists by now: another process wrote it; give --force to overwrite it") from None
    except OSError as error:
        raise Unusable(f"{path}: cannot be written ({error.strerror or error}); nothing was left behind") from None
    finally:
        if part is not None:
            with suppress(OSError):
                part.unlink(missing_ok=True)
            _parts.discard(part)


def remove_unfinished() -> None:
    """Remove the files that other threads are writing, before the process ends without them."""
    for part in [*_parts]:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def refuse_existing(path: Path, *, force: bool) -> None:
    """Raise BadInput if `path` exists without force, or is something that must not be replaced."""
    check_name(path)
    try:
        exists, regular = path.exists(), path.is_file()
        if path.is_symlink():
            path.stat()  # which a loop of links fails, without being there
    except FileNotFoundError:
        return
    except OSError as error:
        raise Unusable(f"{path}: cannot be written ({error.strerror or error})") from None
    if exists and not regular:
        raise Unusable(f"{path}: is not a regular file; give the path of a file to write")
    if exists and not force:
        raise Exists(f"{path}: exists; give --force to overwrite it")


def check_name(path: Path) -> None:
    """Raise BadInput on Windows for a name that it takes for a device, a stream of another file, or another name."""
    if POSIX or path.name in ("", ".."):
        return
    if _DEVICE.fullmatch(path.name) or _NO_NAME.search(path.name):
        raise Malformed(f"{path}: cannot be the name of a file on Windows; give another name")


def lock(descriptor: int, *, wait: bool = True, of_folder: bool = False) -> bool:
    """Lock an open file until it is closed or its process ends; return whether that worked.

    of_folder: what `locks.open_folder` opened. False if another process has locked it (without `wait`), and on file
    systems without locks.
    """
    try:
        flock(descriptor, wait=wait, of_folder=of_folder)
    except OSError:
        return False
    return True


def keep_mode(target: Path, descriptor: int) -> None:
    """Give an open file the permissions of the file that it will replace, if there is one.

    Not on Windows, whose files inherit them from their folder, and which removes no file that is read-only.
    """
    if POSIX:
        with suppress(FileNotFoundError):
            os.fchmod(descriptor, stat.S_IMODE(target.stat().st_mode))


def _put(part: Path, target: Path, *, force: bool) -> None:
    if force:
        patiently(os.replace, part, target)
    else:
        rename_new(part, target)


def patiently(rename: Callable[[Path, Path], None], source: Path, target: Path) -> None:
    """Rename; on Windows, which renames nothing that is open, try for 2 s: virus scanners open what is new."""
    for pause_s in () if POSIX else _PAUSES_S:
        try:
            rename(source, target)
        except PermissionError:
            time.sleep(pause_s)
        else:
            return
    rename(source, target)


def rename_new(source: Path, target: Path) -> None:
    """Rename a file; raises FileExistsError, atomically with the renaming, if the new name is taken."""
    if os.name == "nt":  # where renaming replaces nothing
        patiently(os.rename, source, target)
        return
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if target.exists():  # without links, a file system cannot do both at once
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from None
        source.rename(target)
    else:
        source.unlink()


def sync_folder(folder: Path) -> None:
    """Flush renames in a folder to the disk, if the system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _remove_left_over(target: Path) -> None:
    """Remove the partial files of killed processes: nobody holds their lock.

    On Windows a part is closed, without a lock, just before it is renamed.
    """
    mine = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{16}}\.part")
    for entry in os.scandir(target.parent):
        if mine.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
            with suppress(OSError):
                with open(entry.path, "rb") as stream:
                    left = lock(stream.fileno(), wait=False)
                    if left and POSIX:
                        os.unlink(entry.path)
                if left and not POSIX and time.time() - entry.stat().st_mtime > _UNLOCKED_S:
                    os.unlink(entry.path)


class NoScratch(SimError):
    """No temporary file can be written. Not a BadInput: that would only rule out the system being tried."""

    exit_code = 2


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder that disappears when the block ends.

    Raises NoScratch if it cannot be made, and instead of the block's errors about its files.
    """
    name = ""
    try:
        with TemporaryDirectory(prefix="sim-", ignore_cleanup_errors=True) as name:
            yield Path(name)
    except (OSError, Unusable) as error:
        if name and name not in str(error):
            raise
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error).replace(f"{name}/", "")
        raise NoScratch(
            f"no temporary file can be written ({reason}); make room, or name another folder with TMPDIR"
        ) from None
