"""Lines of a text trace: numbered, bounded in length, and the errors that name them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TypeVar

from flashmoe_sim.io.errors import BadInput, Malformed, shortened
from flashmoe_sim.io.files import BOM
from flashmoe_sim.io.notes import SKIPPED, TORN, Note

MAX_LINE_BYTES = 1 << 20  # a token's pairs take 40 KB for 100 layers with 32 experts each
Parsed = TypeVar("Parsed")


def numbered_lines(
    stream: IO[bytes],
    *,
    path: Path,
    progress: Callable[[int], None] | None = None,
    most_bytes: int = MAX_LINE_BYTES,
    before: int = 0,
) -> Iterator[tuple[int, bytes]]:
    """Every line with its number, from 1; only the last can lack its newline. A byte order mark is left out.

    progress: called about once per MiB with the bytes read since the last call. before: lines that came before.
    Raises BadInput for a line longer than `most_bytes`.
    """
    number, read = before, 0
    while line := stream.readline(most_bytes + 1):
        number += 1
        read += len(line)
        if number == 1:
            line = line.removeprefix(BOM)
        if len(line) > most_bytes:
            raise _too_long(path, number, most_bytes)
        if progress and read >= 1 << 20:
            progress(read)
            read = 0
        yield number, line
    if progress:
        progress(read)


def line_blocks(
    stream: IO[bytes], *, path: Path, first_line: int, progress: Callable[[int], None] | None = None
) -> Iterator[bytes]:
    """The rest of the stream in blocks of whole lines of about a MiB; only the last line can lack its newline.

    Raises BadInput for a line longer than MAX_LINE_BYTES, counted from `first_line`.
    """
    number, rest = first_line, b""
    while chunk := stream.read(MAX_LINE_BYTES + 1):
        end = chunk.rfind(b"\n") + 1
        block, rest = (rest + chunk[:end], chunk[end:]) if end else (b"", rest + chunk)
        number += block.count(b"\n")
        if len(rest) > MAX_LINE_BYTES:
            raise _too_long(path, number, MAX_LINE_BYTES)
        if block:
            yield block
        if progress:
            progress(len(chunk))
    if rest:
        yield rest


def _too_long(path: Path, number: int, most_bytes: int) -> BadInput:
    return Malformed(f"{path}: line {number} is longer than {most_bytes >> 20} MiB: not a line of a trace")


def trace_name(path: Path) -> str:
    """The file's name without its suffixes; for a recorded run's `trace`, the folder's name.

    Bytes that are not UTF-8 become U+FFFD.
    """
    name = Path(path.stem).stem if path.suffix in {".gz", ".zst", ".zstd"} else path.stem
    name = path.absolute().parent.name or name if name == "trace" else name
    return os.fsencode(name).decode("utf-8", "replace")


def excerpt(text: bytes | str, *, width: int = 40) -> str:
    """A quoted excerpt that is safe to print on one line."""
    if isinstance(text, bytes):
        text = text[: 4 * width].decode("utf-8", "backslashreplace")
    return repr(shortened(text, width))


def counted(count: int, noun: str) -> str:
    """A number of things: 1 line, 1,000 lines."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def malformed(path: Path, number: int, found: str) -> BadInput:
    """The error for a line that cannot be used."""
    return Malformed(f"{path}: line {number}: {found}; repair the line, or skip such lines with --lenient")


class Skipped:
    """Counts what a lenient reader leaves out; a strict one raises.

    torn: the number of a torn last line, else 0. what: what it leaves out, in the singular.
    """

    def __init__(self, path: Path, *, lenient: bool, what: str = "malformed line") -> None:
        self.path = path
        self.lenient = lenient
        self.what = what
        self.count = self.torn = 0
        self.first = ""

    def line(self, number: int, found: str) -> None:
        """Raise BadInput, or count the line if lenient."""
        if not self.lenient:
            raise malformed(self.path, number, found)
        if not self.count:
            self.first = f"line {number}: {found}"
        self.count += 1

    def notes(self) -> tuple[str, ...]:
        notes: tuple[str, ...] = ()
        if self.torn:
            notes = (Note(TORN, f"the last line ({self.torn}) is torn and was dropped"),)
        if self.count:
            notes += (Note(SKIPPED, f"skipped {counted(self.count, self.what)}; the first: {self.first}"),)
        return notes


def json_lines(
    stream: IO[bytes],
    parse: Callable[[bytes], Parsed],
    *,
    skipped: Skipped,
    progress: Callable[[int], None] | None = None,
    most_bytes: int = MAX_LINE_BYTES,
    before: int = 0,
) -> Iterator[tuple[int, Parsed]]:
    """What `parse` makes of every line that is not blank, with its number; a torn last line is left out and counted.

    parse: raises ValueError for a malformed line, which `skipped` counts or refuses; its JSONDecodeError if it is not
        even JSON, as a torn line.
    Raises BadInput for a line longer than `most_bytes`.
    """
    lines = numbered_lines(stream, path=skipped.path, progress=progress, most_bytes=most_bytes, before=before)
    for number, line in lines:
        if not line.strip():
            continue
        try:
            parsed = parse(line)
        except json.JSONDecodeError as error:
            if line.endswith(b"\n"):
                skipped.line(number, f"not JSON ({error})")
            else:
                skipped.torn = number
        except ValueError as error:
            skipped.line(number, str(error))
        else:
            yield number, parsed
