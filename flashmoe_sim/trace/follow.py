"""Following a trace of the patched runtime while it is written."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from flashmoe_sim.io.errors import BadInput, Unsupported, Unusable
from flashmoe_sim.trace.check import check_trace
from flashmoe_sim.trace.chunk import Chunk
from flashmoe_sim.trace.runtime_jsonl import CALLS_PER_CHUNK, CHUNK_BYTES, JsonlParser
from flashmoe_sim.trace.source import GZIP_MAGIC, ZSTD_MAGIC

TAIL_BYTES = 64  # the last bytes read, by which the file is recognised


class Follower:
    """Reads what is new in a trace at each look; it keeps only its place.

    there: whether there was a file at the last look. event: what had happened to it since the look before, else empty.
    beginnings: how often `look` started at its first byte.
    read_bytes: how much of it was read.
    """

    def __init__(self, path: Path, *, lenient: bool = False) -> None:
        self.path = path
        self.there = False
        self.event = ""
        self.beginnings = 0
        self.read_bytes = 0
        self._lenient = lenient
        self._parser = JsonlParser(path, lenient=lenient)
        self._file: tuple[int, int] | None = None
        self._tail = b""

    def look(self) -> Iterator[Chunk]:
        """The calls written since the last look, as chunks whose other fields hold for all calls up to their end.

        A last line without its newline counts if it is complete, as when the whole file is read.
        Raises BadInput for a malformed line (unless lenient), more experts than a trace can have, a compressed file,
        and a path that is not a file or cannot be read.
        """
        self.event = ""
        try:
            if not stat.S_ISREG(os.stat(self.path).st_mode):
                raise Unusable(f"{self.path}: is not a file; give the trace that the runtime writes (--moe-trace)")
            stream = self.path.open("rb")
        except FileNotFoundError:
            self.event = "it is gone" if self.there else ""
            self.there = False
            return
        except OSError as error:
            raise Unusable(f"{self.path}: {error.strerror or error}; the file cannot be read") from None
        self.there = True
        with stream:
            self._find_place(stream)
            while data := stream.read(CHUNK_BYTES):
                self._feed(data)
                self.read_bytes += len(data)
                self._tail = (self._tail + data)[-TAIL_BYTES:]
                if self._parser.waiting >= CALLS_PER_CHUNK:
                    yield self._take_so_far()
        self._parser.take_last_line()
        if self._parser.waiting:
            yield self._take_so_far()

    def _feed(self, data: bytes) -> None:
        try:
            self._parser.feed(data)
        except BadInput as error:
            if self._parser.lines > 1:
                raise
            raise type(error)(
                f"{str(error).partition(';')[0]}; only the runtime's lines (--moe-trace) can be followed; `sim sweep` "
                "reads other formats"
            ) from None

    def again(self, head: Chunk) -> Iterator[Chunk]:
        """All calls up to the last look, from the first on. head: what holds for all of them.

        If the file was cut or replaced since then, the calls are others; the next `look` notices.
        """
        parser, left_bytes = JsonlParser(self.path, lenient=self._lenient), self.read_bytes
        with self.path.open("rb") as stream:
            while data := stream.read(min(CHUNK_BYTES, left_bytes)):
                parser.feed(data)
                left_bytes -= len(data)
                if parser.waiting >= CALLS_PER_CHUNK:
                    yield parser.take(head)
        parser.take_last_line()
        yield parser.take(head)

    def _take_so_far(self) -> Chunk:
        chunk = self._parser.take_so_far()
        check_trace(chunk, where=str(self.path))
        return chunk

    def _find_place(self, stream: IO[bytes]) -> None:
        """Go to where the last look ended, or to the first byte if it is another file."""
        now = os.fstat(stream.fileno())
        file = (now.st_dev, now.st_ino)
        if self._file is None:
            self._begin(file)
        elif file != self._file:
            self._begin(file, "another file took its place")
        elif now.st_size < self.read_bytes:
            self._begin(file, f"it was cut from {self.read_bytes:,} to {now.st_size:,} bytes")
        else:
            stream.seek(self.read_bytes - len(self._tail))
            if stream.read(len(self._tail)) != self._tail:
                self._begin(file, "it was written over")
        if not self.read_bytes:
            stream.seek(0)
            if stream.read(4).startswith((GZIP_MAGIC, ZSTD_MAGIC)):
                raise Unsupported(
                    f"{self.path}: is compressed, and nothing can be appended to it line by line; "
                    "watch the runtime's own file, or replay this one with `sim replay`"
                )
            stream.seek(0)

    def _begin(self, file: tuple[int, int], event: str = "") -> None:
        self._file = file
        self.event = f"{event}; read from its first byte" if event else ""
        self._parser, self.read_bytes, self._tail = JsonlParser(self.path, lenient=self._lenient), 0, b""
        self.beginnings += 1
