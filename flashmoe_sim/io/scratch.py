"""A temporary folder, and an error with what to do if nothing can be written there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from flashmoe_sim.io.errors import SimError, Unusable


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
