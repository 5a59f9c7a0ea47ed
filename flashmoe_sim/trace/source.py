"""Reading bytes from a trace file, compressed or not."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from flashmoe_sim.io import strict_json
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.trace.lines import BOM

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
# Traces compress by 4 to 12 times, a trace that repeats one token by about 100 times; 1 MB of zeros is 1 KB of gzip.
SMALL_BYTES = 64 << 20
MOST_RATIO = 100


def most_bytes(compressed_bytes: int) -> int:
    """The most bytes that a compressed trace of this size may decompress to."""
    return SMALL_BYTES + MOST_RATIO * compressed_bytes


STDIN = Path("/dev/stdin")


@dataclass
class Reading:
    """How a file is being read.

    cut_off: whether a lenient reader found its compressed data cut off.
    packed_bytes: how much of a compressed file was read, over all readings.
    """

    lenient: bool
    pipe: IO[bytes] | None = None
    cut_off: bool = False
    packed_bytes: int = 0

    def in_file(self, progress: Callable[[int], None]) -> Callable[[int], None]:
        """The progress for a reader, which counts decompressed bytes, of one that counts the bytes of the file."""
        reported = self.packed_bytes

        def advance(count_bytes: int) -> None:
            nonlocal reported
            if self.packed_bytes:
                count_bytes, reported = self.packed_bytes - reported, self.packed_bytes
            progress(count_bytes)

        return advance


_readings: dict[Path, Reading] = {}


@contextmanager
def reading(path: Path, *, lenient: bool) -> Iterator[Reading]:
    """Within this block a pipe can be opened again, and, if lenient, cut-off compressed data is read up to the cut.

    A pipe's content is copied to a temporary file first. Raises BadInput for a terminal, and a file that cannot be
    read.
    """
    how = Reading(lenient)
    if path == STDIN and os.isatty(0):
        raise BadInput("stdin is a terminal; pipe a trace into it, or give the path of a trace")
    with ExitStack() as stack:
        try:
            if path.is_fifo():
                how.pipe = stack.enter_context(tempfile.TemporaryFile())
                with path.open("rb") as pipe:
                    shutil.copyfileobj(pipe, how.pipe, 1 << 20)
        except OSError as error:
            raise BadInput(f"{path}: {error.strerror or error}; the file cannot be read") from None
        _readings[path] = how
        stack.callback(_readings.pop, path)
        yield how


@contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """The file's content as a binary stream, decompressed if it begins like gzip or zstd.

    Raises BadInput for a file that is missing, is a directory, cannot be read, or whose compression is broken, and if
    it decompresses to more than `most_bytes`.
    """
    how = _readings.get(path, Reading(lenient=False))
    try:
        with _raw(path, how) as raw:
            magic = raw.read(4)
            raw.seek(0)
            if magic[:2] == GZIP_MAGIC:
                if how.lenient:
                    yield _limited(_UpToCut(raw, lambda: zlib.decompressobj(wbits=31), how), raw, path, how)
                    return
                with gzip.open(raw) as stream:
                    yield _limited(stream, raw, path, how)
            elif magic == ZSTD_MAGIC and how.lenient:
                import zstandard

                try:
                    yield _limited(_UpToCut(raw, zstandard.ZstdDecompressor().decompressobj, how), raw, path, how)
                except zstandard.ZstdError as error:
                    raise BadInput(f"{path}: broken zstd data ({error}); copy or record the file again") from None
            elif magic == ZSTD_MAGIC:
                import pyarrow

                # not zstandard's own reader, which treats a frame that is cut short as the end
                with pyarrow.CompressedInputStream(raw, "zstd") as stream:
                    yield _limited(stream, raw, path, how)
            else:
                yield raw
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file; give the path of a trace") from None
    except IsADirectoryError:
        raise BadInput(f"{path}: is a directory; give a trace file inside it") from None
    except PermissionError:
        raise BadInput(f"{path}: may not be read; check its permissions") from None
    except EOFError:
        raise _cut_off(path, "gzip") from None
    except (zlib.error, gzip.BadGzipFile) as error:
        raise BadInput(f"{path}: broken gzip data ({error}); copy or record the file again") from None
    except OSError as error:
        if error.errno is None:  # pyarrow's
            if "Truncated" in str(error):
                raise _cut_off(path, "zstd") from None
            raise BadInput(f"{path}: broken zstd data ({error}); copy or record the file again") from None
        raise BadInput(f"{path}: {error.strerror or error}; the file cannot be read") from None


def read_json(path: Path, *, progress: Callable[[int], None] | None = None, most_bytes: int = -1) -> Any:
    """The content of a file with one JSON document.

    most_bytes: of the decompressed document; -1: no limit.
    Raises BadInput like `open_bytes`, and for a document that is larger, cut short or not JSON.
    """
    with open_bytes(path) as stream:
        text = stream.read(most_bytes if most_bytes < 0 else most_bytes + 1).removeprefix(BOM)
    if 0 <= most_bytes < len(text):
        raise BadInput(f"{path}: a JSON document of more than {most_bytes >> 20} MiB is not read; cut it")
    if progress:
        progress(len(text))
    try:
        return strict_json.loads(text)
    except ValueError as error:
        raise BadInput(f"{path}: not a complete JSON document ({error}); record or copy it again") from None


def _limited(stream: Any, raw: IO[bytes], path: Path, how: Reading) -> IO[bytes]:
    """A decompressed stream that raises BadInput if it has more bytes than a trace of its compressed size can have."""
    return io.BufferedReader(_Limited(stream, raw, path, how))


class _Limited(io.RawIOBase):
    def __init__(self, stream: Any, raw: IO[bytes], path: Path, how: Reading) -> None:
        self._stream, self._raw, self._path, self._how = stream, raw, path, how
        self._most, self._read, self._at = most_bytes(os.fstat(raw.fileno()).st_size), 0, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count: int = self._stream.readinto(buffer)
        self._read += count
        before, self._at = self._at, self._raw.tell()
        self._how.packed_bytes += self._at - before
        if self._read > self._most:
            raise BadInput(
                f"{self._path}: decompresses to more than {self._most >> 20:,} MiB, over {MOST_RATIO} times its size: "
                "not a trace; if it is one, decompress it first"
            )
        return count


def _raw(path: Path, how: Reading) -> AbstractContextManager[IO[bytes]]:
    if how.pipe is None:
        return path.open("rb")
    how.pipe.seek(0)
    return nullcontext(how.pipe)


def _cut_off(path: Path, kind: str) -> BadInput:
    return BadInput(f"{path}: its {kind} data is cut off; copy or record it again, or read up to there with --lenient")


class _UpToCut(io.RawIOBase):
    """Decompressed data, one compressed part after another, up to the cut in the last one."""

    def __init__(self, raw: IO[bytes], decompressor: Callable[[], Any], how: Reading) -> None:
        self._raw, self._decompressor, self._how = raw, decompressor, how
        self._part: Any = None
        self._rest = self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            chunk = self._rest or self._raw.read(1 << 16)
            if self._part is None:
                chunk = chunk.lstrip(b"\0")  # gzip may pad its parts
            if not chunk:
                self._how.cut_off = self._part is not None
                return 0
            self._part = self._part or self._decompressor()
            self._ready, self._rest = self._part.decompress(chunk), b""
            if self._part.eof:
                self._rest, self._part = self._part.unused_data, None
        size = min(len(buffer), len(self._ready))
        buffer[:size], self._ready = self._ready[:size], self._ready[size:]
        return size
