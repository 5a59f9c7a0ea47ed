"""Columns of a CSV body as arrays: strict, with line numbers, and fast if every line is well formed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import Malformed
from flashmoe_sim.trace.calls import ID_MAX
from flashmoe_sim.trace.lines import Skipped, excerpt, line_blocks
from flashmoe_sim.trace.requests import ReadOptions

LARGEST_REAL = float(np.finfo(np.float32).max)

_INTEGER = re.compile(rb"-?[0-9]{1,18}")
_REAL = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


@dataclass(frozen=True)
class TextColumn:
    """A column to read: whole numbers low..high, finite 32-bit floats if `real`, or one of `words`."""

    name: str
    low: int = 0
    high: int = ID_MAX
    real: bool = False
    words: Mapping[str, int] = field(default_factory=dict)

    @property
    def dtype(self) -> type[np.generic]:
        """The smallest dtype that holds every value."""
        if self.real:
            return np.float32
        return np.int16 if self.high <= ID_MAX else np.int32 if self.high < 1 << 31 else np.int64

    @property
    def expected(self) -> str:
        if self.words:
            return "one of " + ", ".join(word for word in self.words if word)
        return "a 32-bit float" if self.real else f"a whole number {self.low}..{self.high}"


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a body.

    line: i64 [rows], the line number of each row in the file.
    values: per column i16, i32 or i64 [rows], or f32 [rows] if real.
    """

    line: NDArray[np.int64]
    values: dict[str, NDArray[Any]]
    notes: tuple[str, ...] = ()


def read_rows(
    stream: IO[bytes],
    options: ReadOptions,
    *,
    path: Path,
    number: int,
    header: Sequence[str],
    columns: Sequence[TextColumn],
    first: bytes = b"",
) -> Rows:
    """The requested columns of a body whose fields are named by `header`.

    Only the very last line can be torn. A block of lines is parsed at once; if anything in it is unusual, it is read
    line by line, so that the line can be named. Fields are not quoted. Empty lines are skipped.
    number: of the line at which the stream is. first: the line before it, if that belongs to the body and was read.
    Raises BadInput with the line number for a malformed line, unless lenient or it is a torn last line.
    """
    skipped = Skipped(path, lenient=options.lenient)
    lines: list[NDArray[np.int64]] = []
    parts: dict[str, list[NDArray[Any]]] = {column.name: [] for column in columns}
    rest = line_blocks(stream, path=path, first_line=number, progress=options.progress)
    number -= bool(first)
    for block in chain([first] if first else [], rest):
        values = _at_once(block, header=header, columns=columns)
        if values is None:
            at, values = _line_by_line(block, first_line=number, header=header, columns=columns, skipped=skipped)
        else:
            at = np.arange(number, number + len(values[columns[0].name]), dtype=np.int64)
        lines.append(at)
        for column in columns:
            parts[column.name].append(values[column.name].astype(column.dtype))
        number += block.count(b"\n")
    if not any(map(len, lines)):
        raise Malformed(f"{path}: holds no complete row after its header; expected {len(header)} columns")
    whole = {column.name: np.concatenate(parts.pop(column.name)) for column in columns}
    return Rows(np.concatenate(lines), whole, skipped.notes())


def _at_once(body: bytes, *, header: Sequence[str], columns: Sequence[TextColumn]) -> dict[str, NDArray[Any]] | None:
    """The columns, or None if a line is malformed."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv

    lines = body.count(b"\n") + (not body.endswith(b"\n"))
    if not body.strip() or b"x" in body or b"X" in body:  # pyarrow would read 0x1F as 31
        return None
    types = {
        column.name: pa.string() if column.words else pa.float64() if column.real else pa.int64() for column in columns
    }
    try:
        table = csv.read_csv(
            pa.BufferReader(body),
            read_options=csv.ReadOptions(column_names=list(header), use_threads=False),
            parse_options=csv.ParseOptions(quote_char=False, ignore_empty_lines=False),
            convert_options=csv.ConvertOptions(
                column_types=types, include_columns=list(types), null_values=[], strings_can_be_null=False
            ),
        )
    except pa.ArrowException:
        return None
    if table.num_rows != lines:
        return None
    values: dict[str, NDArray[Any]] = {}
    for column in columns:
        found = table.column(column.name)
        if column.words:
            place = pc.index_in(found, pa.array(list(column.words)))
            if place.null_count:
                return None
            code = np.array(list(column.words.values()), dtype=np.int64)
            values[column.name] = code[place.to_numpy()]
            continue
        array = np.array(found.to_numpy())
        if found.null_count or (column.real and not (np.abs(array) <= LARGEST_REAL).all()):
            return None
        if not column.real and (array.min() < column.low or array.max() > column.high):
            return None
        values[column.name] = array
    return values


def _line_by_line(
    body: bytes, *, first_line: int, header: Sequence[str], columns: Sequence[TextColumn], skipped: Skipped
) -> tuple[NDArray[np.int64], dict[str, NDArray[Any]]]:
    """The line numbers and columns of a block; a last line that is torn is left out."""
    wanted = [(header.index(column.name), column) for column in columns]
    numbers: list[int] = []
    rows: list[list[float]] = []
    lines = body.split(b"\n")
    for number, line in enumerate(lines, first_line):
        if not line.strip():
            continue
        try:
            rows.append(_row(line, fields=len(header), wanted=wanted))
            numbers.append(number)
        except ValueError as error:
            if number == first_line + len(lines) - 1:
                skipped.torn = number
            else:
                skipped.line(number, str(error))
    values = {
        column.name: np.array([row[place] for row in rows], dtype=np.float64 if column.real else np.int64)
        for place, column in enumerate(columns)
    }
    return np.array(numbers, dtype=np.int64), values


def _row(line: bytes, *, fields: int, wanted: Sequence[tuple[int, TextColumn]]) -> list[float]:
    parts = line.rstrip(b"\r").split(b",")
    if len(parts) != fields:
        raise ValueError(f"{len(parts)} fields, expected {fields}: {excerpt(line)}")
    return [_value(parts[place].strip(), column) for place, column in wanted]


def _value(text: bytes, column: TextColumn) -> float:
    if column.words:
        word = text.decode("utf-8", "backslashreplace")
        if word in column.words:
            return column.words[word]
    elif column.real:
        if _REAL.fullmatch(text) and abs(number := float(text)) <= LARGEST_REAL:
            return number
    elif _INTEGER.fullmatch(text) and column.low <= int(text) <= column.high:
        return int(text)
    raise ValueError(f"{column.name} is {excerpt(text)}, expected {column.expected}")
