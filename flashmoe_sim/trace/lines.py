"""Lines of a text trace: numbered, bounded in length, and the errors that name them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from flashmoe_sim.errors import BadInput

MAX_LINE_BYTES = 64 << 20


def numbered_lines(
    stream: IO[bytes], *, path: Path, progress: Callable[[int], None] | None = None
) -> Iterator[tuple[int, bytes]]:
    """Every line with its number from 1; only the last can lack its newline.

    progress: called about once a MiB with the bytes read since the last call.
    Raises BadInput for a line longer than MAX_LINE_BYTES.
    """
    number = read = 0
    while line := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        read += len(line)
        if len(line) > MAX_LINE_BYTES:
            raise _too_long(path, number)
        if progress and read >= 1 << 20:
            progress(read)
            read = 0
        yield number, line
    if progress:
        progress(read)


def remaining_lines(
    stream: IO[bytes], *, path: Path, first_line: int, progress: Callable[[int], None] | None = None
) -> bytes:
    """All that is left of the stream, as one string of lines of which the first has the number `first_line`.

    Raises BadInput for a line longer than MAX_LINE_BYTES.
    """
    chunks = []
    number, unended = first_line, 0
    while chunk := stream.read(1 << 20):
        chunks.append(chunk)
        newline = chunk.rfind(b"\n")
        unended = unended + len(chunk) if newline < 0 else len(chunk) - newline - 1
        number += chunk.count(b"\n")
        if unended > MAX_LINE_BYTES:
            raise _too_long(path, number)
        if progress:
            progress(len(chunk))
    return b"".join(chunks)


def _too_long(path: Path, number: int) -> BadInput:
    return BadInput(f"{path}: line {number} is longer than {MAX_LINE_BYTES >> 20} MiB: not a line of a trace")


def trace_name(path: Path) -> str:
    """The file's name without the endings of compression and format; its folder's for a `trace`, as runs record it."""
    name = Path(path.stem).stem if path.suffix in {".gz", ".zst", ".zstd"} else path.stem
    return path.absolute().parent.name or name if name == "trace" else name


def shown(text: bytes | str, *, width: int = 40) -> str:
    """A quoted excerpt that is safe to print on one line."""
    if isinstance(text, bytes):
        text = text[: 4 * width].decode("utf-8", "backslashreplace")
    return repr(text if len(text) <= width else text[: width - 3] + "...")


def malformed(path: Path, number: int, found: str) -> BadInput:
    """The error for a line that cannot be used."""
    return BadInput(f"{path}: line {number}: {found}; repair the line, or skip such lines with --lenient")


class Skipped:
    """Counts what a lenient reader leaves out, or raises when it may leave nothing out."""

    def __init__(self, path: Path, *, lenient: bool) -> None:
        self.path = path
        self.lenient = lenient
        self.count = 0
        self.first = ""

    def line(self, number: int, found: str) -> None:
        """Raise BadInput, or count the line when lenient."""
        if not self.lenient:
            raise malformed(self.path, number, found)
        if not self.count:
            self.first = f"line {number}: {found}"
        self.count += 1

    def notes(self) -> tuple[str, ...]:
        if not self.count:
            return ()
        plural = "line" if self.count == 1 else "lines"
        return (f"skipped {self.count:,} malformed {plural}; the first: {self.first}",)
