"""Opening the file that a user names, with an error that says what is wrong with it."""

from __future__ import annotations

import re
import stat
from pathlib import Path

from flashmoe_sim.io.errors import BadInput, Malformed, Missing, Unusable

BOM = b"\xef\xbb\xbf"
UTF_16 = re.compile(rb"(?:\xff\xfe|\xfe\xff)(?!\0\0)")  # the mark that PowerShell's `>` writes, and not UTF-32's


def regular_file_bytes(path: Path, *, kind: str) -> int:
    """The size of a regular file, in bytes.

    kind: what the file should be, for the message.
    Raises BadInput if there is no such file, or it is empty, a directory, a device or inaccessible.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        raise Missing(f"{path}: no such file", advice=f"give the path of {kind}") from None
    except (OSError, ValueError) as error:
        raise Unusable(f"{path!s}: cannot be read ({_reason(error)})", advice=f"give the path of {kind}") from None
    if stat.S_ISDIR(status.st_mode):
        raise Unusable(f"{path}: is a directory", advice=f"give the path of {kind}")
    if not stat.S_ISREG(status.st_mode):
        raise Unusable(f"{path}: is not a regular file", advice=f"give the path of {kind}")
    if status.st_size == 0:
        raise Malformed(f"{path}: is empty; expected {kind}", advice="write or copy it again")
    return status.st_size


def as_utf8(data: bytes) -> bytes:
    """The bytes of a text as UTF-8, if they are UTF-16, without a mark; else as they are."""
    return data.decode("utf-16", "replace").encode() if UTF_16.match(data) else data


def unreadable(path: Path, error: OSError) -> BadInput:
    """The error for a file that exists but could not be read."""
    return Unusable(f"{path}: cannot be read ({_reason(error)})", advice="check its permissions")


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
