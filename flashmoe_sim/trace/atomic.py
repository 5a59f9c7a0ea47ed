"""Writing a file all at once: it appears complete, or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from flashmoe_sim.errors import BadInput


@contextmanager
def atomic_writer(path: Path, *, force: bool = False) -> Iterator[IO[bytes]]:
    """A binary stream whose content replaces `path` when the block ends without an error.

    Until then it is a hidden file beside it, removed on any error or interruption.
    Raises BadInput where `path` exists without force, is not a regular file, or cannot be written.
    """
    refuse_existing(path, force=force)
    target = path.resolve()
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(target)
    except OSError as error:
        raise BadInput(f"{path}: cannot be written ({error.strerror or error}); nothing was left behind") from None
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def refuse_existing(path: Path, *, force: bool) -> None:
    """Raise BadInput where `path` exists without force, or is something that must not be replaced."""
    try:
        exists, regular = path.exists(), path.is_file()
    except OSError as error:
        raise BadInput(f"{path}: cannot be written ({error.strerror or error})") from None
    if exists and not regular:
        raise BadInput(f"{path}: is not a regular file; give the path of a file to write")
    if exists and not force:
        raise BadInput(f"{path}: exists; give --force to overwrite it")
