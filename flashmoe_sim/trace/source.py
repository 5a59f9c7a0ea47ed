"""Reading bytes from a trace file, whatever it is compressed with."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from flashmoe_sim.errors import BadInput

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


@contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """The file's content as a binary stream, decompressed where it begins like gzip or zstd.

    Raises BadInput for a file that is missing, is a directory, cannot be read, or whose compression is broken.
    """
    try:
        with path.open("rb") as raw:
            magic = raw.read(4)
            raw.seek(0)
            if magic[:2] == GZIP_MAGIC:
                with gzip.open(raw) as stream:
                    yield cast(IO[bytes], stream)
            elif magic == ZSTD_MAGIC:
                import pyarrow

                # not zstandard's own reader, which takes a frame that is cut short for the end
                with pyarrow.CompressedInputStream(raw, "zstd") as stream:
                    yield io.BufferedReader(cast(io.RawIOBase, stream))
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
