"""Reading bytes from a trace file, whatever it is compressed with."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from flashmoe_sim.errors import BadInput

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
# Traces compress 4 to 12 times, one that repeats a single token about 100 times; 1 MB of zeros is 1 KB of gzip.
SMALL_BYTES = 64 << 20
MOST_RATIO = 100


def most_bytes(compressed_bytes: int) -> int:
    """The most bytes that a compressed trace of this size may decompress to."""
    return SMALL_BYTES + MOST_RATIO * compressed_bytes


@contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """The file's content as a binary stream, decompressed where it begins like gzip or zstd.

    Raises BadInput for a file that is missing, is a directory, cannot be read, or whose compression is broken, and if
    it decompresses to more than `most_bytes`.
    """
    try:
        with path.open("rb") as raw:
            magic = raw.read(4)
            raw.seek(0)
            if magic[:2] == GZIP_MAGIC:
                with gzip.open(raw) as stream:
                    yield _limited(stream, raw, path)
            elif magic == ZSTD_MAGIC:
                import pyarrow

                # not zstandard's own reader, which takes a frame that is cut short for the end
                with pyarrow.CompressedInputStream(raw, "zstd") as stream:
                    yield _limited(stream, raw, path)
            else:
                yield raw
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file; give the path of a trace") from None
    except IsADirectoryError:
        raise BadInput(f"{path}: is a directory; give a trace file inside it") from None
    except PermissionError:
        raise BadInput(f"{path}: may not be read; check its permissions") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadInput(f"{path}: broken gzip data ({error}); copy or record the file again") from None
    except OSError as error:
        if error.errno is None:  # pyarrow's
            raise BadInput(f"{path}: broken zstd data ({error}); copy or record the file again") from None
        raise BadInput(f"{path}: {error.strerror or error}; the file cannot be read") from None


def _limited(stream: Any, raw: IO[bytes], path: Path) -> IO[bytes]:
    """A decompressed stream that ends in BadInput if it has more bytes than a trace of its compressed size."""
    return io.BufferedReader(_Limited(stream, most_bytes(os.fstat(raw.fileno()).st_size), path))


class _Limited(io.RawIOBase):
    def __init__(self, stream: Any, most: int, path: Path) -> None:
        self._stream, self._most, self._path = stream, most, path
        self._read = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count: int = self._stream.readinto(buffer)
        self._read += count
        if self._read > self._most:
            raise BadInput(
                f"{self._path}: decompresses to more than {self._most >> 20:,} MiB, over {MOST_RATIO} times its size: "
                "not a trace; if it is one, decompress it first"
            )
        return count
