"""Reading bytes from a trace file, compressed or not."""

from __future__ import annotations

import codecs
import io
import os
import shutil
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Lock, get_ident
from typing import IO, Any, cast

from flashmoe_sim.io import strict_json
from flashmoe_sim.io.errors import BadInput, Malformed, Missing, TooLarge, Unusable, shown
from flashmoe_sim.io.files import BOM, UTF_16
from flashmoe_sim.io.locks import POSIX

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
# Traces compress by 4 to 12 times, a trace that repeats one token by about 100 times; 1 MB of zeros is 1 KB of gzip.
SMALL_BYTES = 64 << 20
MOST_RATIO = 100
MOST_MEMBERS = 1 << 16
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, NotImplementedError, RuntimeError)
READ_BYTES = 4096  # at a time: the worst of them decompress to 128 MiB


def most_bytes(compressed_bytes: int) -> int:
    """The most bytes that a compressed trace of this size may decompress to."""
    return SMALL_BYTES + MOST_RATIO * compressed_bytes


STDIN = Path("/dev/stdin")


@dataclass
class Reading:
    """How a file is being read.

    cut_off: whether a lenient reader found its compressed data cut off.
    packed_bytes: how much of a compressed file was read, over all readings. thread: that began it.
    """

    lenient: bool
    pipe: IO[bytes] | None = None
    cut_off: bool = False
    packed_bytes: int = 0
    thread: int = field(default_factory=get_ident)

    def in_file(self, progress: Callable[[int], None]) -> Callable[[int], None]:
        """The progress for a reader, which counts decompressed bytes, of one that counts the bytes of the file."""
        reported = self.packed_bytes

        def advance(count_bytes: int) -> None:
            nonlocal reported
            if self.packed_bytes:
                count_bytes, reported = self.packed_bytes - reported, self.packed_bytes
            progress(count_bytes)

        return advance


_readings: dict[Path, list[Reading]] = {}  # several threads may read the same trace
_changing = Lock()  # _readings


@contextmanager
def reading(path: Path, *, lenient: bool) -> Iterator[Reading]:
    """Within this block a pipe can be opened again, and, if lenient, cut-off compressed data is read up to the cut.

    A pipe's content is copied to a temporary file first. Raises BadInput for a terminal, and a file that cannot be
    read.
    """
    how = Reading(lenient)
    if path == STDIN and os.isatty(0):
        raise Unusable("stdin is a terminal; pipe a trace into it, or give the path of a trace")
    with ExitStack() as stack:
        try:
            nameless = path == STDIN and not POSIX and sys.stdin is not None  # Windows has no such file
            if nameless or path.is_fifo():
                how.pipe = stack.enter_context(tempfile.TemporaryFile())
                with nullcontext(sys.stdin.buffer) if nameless else path.open("rb") as pipe:
                    shutil.copyfileobj(pipe, how.pipe, 1 << 20)
        except OSError as error:
            raise Unusable(f"{path}: {error.strerror or error}; the file cannot be read") from None
        with _changing:
            _readings.setdefault(path, []).append(how)
        stack.callback(_end, path, how)
        yield how


def _end(path: Path, how: Reading) -> None:
    with _changing:
        left = [one for one in _readings.pop(path) if one is not how]
        if left:
            _readings[path] = left


def _reading_of(path: Path) -> Reading:
    """How this thread reads a file, or else the last that began to."""
    with _changing:
        known = [*_readings.get(path, ())]
    own: list[Reading] = [one for one in known if one.thread == get_ident()]
    return (own or known or [Reading(lenient=False)])[-1]


@contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """The file's content as a binary stream, decompressed if it begins like gzip or zstd.

    Raises BadInput for a file that is missing, is a directory, cannot be read, or whose compression is broken, and if
    it decompresses to more than `most_bytes`.
    """
    how = _reading_of(path)
    try:
        with _raw(path, how) as raw:
            magic = raw.read(4)
            raw.seek(0)
            if magic[:2] == GZIP_MAGIC or magic == ZSTD_MAGIC:
                kind = "zstd" if magic == ZSTD_MAGIC else "gzip"
                yield _in_utf8(io.BufferedReader(_Decompressed(raw, path, how, kind=kind)))
            else:
                yield _in_utf8(raw)
    except FileNotFoundError:
        raise Missing(f"{path}: no such file; give the path of a trace") from None
    except IsADirectoryError:
        raise Unusable(f"{path}: is a directory; give a trace file inside it") from None
    except PermissionError:
        raise Unusable(f"{path}: may not be read; check its permissions") from None
    except OSError as error:
        raise Unusable(f"{path}: {error.strerror or error}; the file cannot be read") from None


def _in_utf8(stream: IO[bytes]) -> IO[bytes]:
    """The stream, recoded if it is UTF-16, as PowerShell's `>` writes it."""
    buffered = cast("io.BufferedReader", stream)
    return io.BufferedReader(_Recoded(stream)) if UTF_16.match(buffered.peek(4)) else stream


class _Recoded(io.RawIOBase):
    """UTF-16 with its mark as UTF-8."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-16")("replace")
        self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready and (chunk := self._stream.read(READ_BYTES)):
            self._ready = self._decoder.decode(chunk).encode("utf-8", "replace")
        size = min(len(buffer), len(self._ready))
        buffer[:size], self._ready = self._ready[:size], self._ready[size:]
        return size


def read_json(path: Path, *, progress: Callable[[int], None] | None = None, most_bytes: int = -1) -> Any:
    """The content of a file with one JSON document.

    most_bytes: of the decompressed document; -1: no limit.
    Raises BadInput like `open_bytes`, and for a document that is larger, cut short or not JSON.
    """
    with open_bytes(path) as stream:
        text = stream.read(most_bytes if most_bytes < 0 else most_bytes + 1).removeprefix(BOM)
    if 0 <= most_bytes < len(text):
        raise TooLarge(f"{path}: a JSON document of more than {most_bytes >> 20} MiB is not read; cut it")
    if progress:
        progress(len(text))
    try:
        return strict_json.loads(text)
    except ValueError as error:
        raise Malformed(f"{path}: not a complete JSON document ({error}); record or copy it again") from None


def _raw(path: Path, how: Reading) -> AbstractContextManager[IO[bytes]]:
    if how.pipe is None:
        return path.open("rb", buffering=1 << 17)  # a line of a response takes many of the usual 8 KiB
    how.pipe.seek(0)
    return nullcontext(how.pipe)


class _Decompressed(io.RawIOBase):
    """Decompressed data, one compressed part after another; if lenient, up to a cut in the last one.

    Raises BadInput for broken and cut-off data, and for more bytes than a trace of its compressed size can have.
    """

    def __init__(self, raw: IO[bytes], path: Path, how: Reading, *, kind: str) -> None:
        self._raw, self._path, self._how, self._kind = raw, path, how, kind
        self._error: type[Exception] = zlib.error
        self._decompressor: Callable[[], Any] = partial(zlib.decompressobj, wbits=31)
        if kind == "zstd":
            import zstandard

            self._error, self._decompressor = zstandard.ZstdError, zstandard.ZstdDecompressor().decompressobj
        self._most, self._read = most_bytes(os.fstat(raw.fileno()).st_size), 0
        self._part: Any = None
        self._rest, self._ready = b"", memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            self._decompress()
        except self._error as error:
            raise Malformed(
                f"{self._path}: broken {self._kind} data ({error}); copy or record the file again"
            ) from None
        size = min(len(buffer), len(self._ready))
        buffer[:size], self._ready = self._ready[:size], self._ready[size:]
        self._read += size
        if self._read > self._most:
            raise TooLarge(
                f"{self._path}: decompresses to more than {self._most >> 20:,} MiB, over {MOST_RATIO} times its size: "
                "not a trace; if it is one, decompress it first"
            )
        return size

    def _decompress(self) -> None:
        """Make more bytes ready, unless the data ends."""
        while not self._ready and (chunk := self._rest or self._compressed()):
            self._rest = b""
            if self._part is None:
                chunk = chunk.lstrip(b"\0")  # gzip may pad its parts
            if chunk:
                self._part = self._part or self._decompressor()
                self._ready = memoryview(self._part.decompress(chunk))
                if self._part.eof:
                    self._rest, self._part = self._part.unused_data, None
        if self._ready or self._part is None:
            return
        if not self._how.lenient:
            raise Malformed(
                f"{self._path}: its {self._kind} data is cut off; copy or record it again, or read up to there with "
                "--lenient"
            )
        self._how.cut_off = True

    def _compressed(self) -> bytes:
        chunk = self._raw.read(READ_BYTES)
        self._how.packed_bytes += len(chunk)
        return chunk


class Archive:
    """The members of a zip file that is in memory, none of which is read if it unpacks to much more than its size.

    Raises BadInput if it is damaged. where: how errors name it.
    """

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
            raise TooLarge(
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
            raise TooLarge(
                f"{self.where}: {shown(name, 40)} unpacks to more than {MOST_RATIO} times the file's size: not a trace"
            )
        self._unpacked += len(content)
        return content

    def _damaged(self, error: Exception) -> BadInput:
        found = str(error).partition("\n")[0] or type(error).__name__
        return Malformed(f"{self.where}: a damaged zip archive ({found}); copy or record it again")
