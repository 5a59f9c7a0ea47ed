"""Zip archives with a limit: no member is read that unpacks to much more than its size."""

from __future__ import annotations

import io
import zipfile
import zlib

from flashmoe_sim.io.errors import BadInput, shown
from flashmoe_sim.trace.source import MOST_RATIO, most_bytes

MOST_MEMBERS = 1 << 16
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, NotImplementedError, RuntimeError)


class Archive:
    """The members of a zip file that is in memory. Raises BadInput if it is damaged. where: how errors name it."""

    def __init__(self, content: bytes, where: str) -> None:
        self.where = where
        self._size = len(content)
        self._unpacked = 0
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(content))
            self._members = {info.filename: info for info in self._zip.infolist()}
        except _BROKEN as error:
            raise self._damaged(error) from None
        if len(self._members) > MOST_MEMBERS:
            raise BadInput(
                f"{where}: {len(self._members):,} files in it; expected at most {MOST_MEMBERS:,}: not a trace"
            )

    @property
    def names(self) -> list[str]:
        return list(self._members)

    def read(self, name: str) -> bytes:
        """A member's bytes; all members read together may unpack to at most what a trace of this size may."""
        left = most_bytes(self._size) - self._unpacked
        try:
            with self._zip.open(self._members[name]) as stream:
                content = stream.read(left + 1)
        except _BROKEN as error:
            raise self._damaged(error) from None
        if len(content) > left:
            raise BadInput(
                f"{self.where}: {shown(name, 40)} unpacks to more than {MOST_RATIO} times the file's size: not a trace"
            )
        self._unpacked += len(content)
        return content

    def _damaged(self, error: Exception) -> BadInput:
        found = str(error).partition("\n")[0] or type(error).__name__
        return BadInput(f"{self.where}: a damaged zip archive ({found}); copy or record it again")
