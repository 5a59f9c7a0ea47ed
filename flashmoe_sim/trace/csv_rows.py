"""Columns of a CSV body as arrays: strict, with line numbers, and fast where every line is in order."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.errors import BadInput
from flashmoe_sim.trace.calls import ID_MAX
from flashmoe_sim.trace.lines import Skipped, shown

_INTEGER = re.compile(rb"-?[0-9]{1,18}")


@dataclass(frozen=True)
class Column:
    """A column to read: whole numbers low..high, finite numbers where `real`, or one of `words`."""

    name: str
    low: int = 0
    high: int = ID_MAX
    real: bool = False
    words: Mapping[str, int] = field(default_factory=dict)

    @property
    def expected(self) -> str:
        if self.words:
            return "one of " + ", ".join(word for word in self.words if word)
        return "a number" if self.real else f"a whole number {self.low}..{self.high}"


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a body.

    line: i64 [rows], the line number of each row in the file.
    values: per column i64 [rows], or f64 [rows] where real.
    torn: whether a last line without its newline was dropped.
    """

    line: NDArray[np.int64]
    values: dict[str, NDArray[Any]]
    torn: bool = False
    notes: tuple[str, ...] = ()


def read_rows(
    body: bytes, *, path: Path, first_line: int, header: Sequence[str], columns: Sequence[Column], lenient: bool
) -> Rows:
    """The wanted columns of a body whose fields are named by `header`.

    The whole body is tried at once; where anything in it is unusual it is read line by line, so that the line can be
    named. Fields are not quoted. Empty lines are skipped.
    Raises BadInput with the line number for a malformed line, unless lenient or it is a torn last line.
    """
    values = _at_once(body, header=header, columns=columns)
    if values is not None:
        rows = len(values[columns[0].name])
        return Rows(np.arange(first_line, first_line + rows, dtype=np.int64), values)
    return _line_by_line(body, path=path, first_line=first_line, header=header, columns=columns, lenient=lenient)


def _at_once(body: bytes, *, header: Sequence[str], columns: Sequence[Column]) -> dict[str, NDArray[Any]] | None:
    """The columns, or None where a line is not as it should be."""
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
        if found.null_count or not np.isfinite(array).all():
            return None
        if not column.real and (array.min() < column.low or array.max() > column.high):
            return None
        values[column.name] = array
    return values


def _line_by_line(
    body: bytes, *, path: Path, first_line: int, header: Sequence[str], columns: Sequence[Column], lenient: bool
) -> Rows:
    skipped = Skipped(path, lenient=lenient)
    wanted = [(header.index(column.name), column) for column in columns]
    numbers: list[int] = []
    rows: list[list[float]] = []
    torn = False
    lines = body.split(b"\n")
    for number, line in enumerate(lines, first_line):
        if not line.strip():
            continue
        try:
            rows.append(_row(line, fields=len(header), wanted=wanted))
            numbers.append(number)
        except ValueError as error:
            if number == first_line + len(lines) - 1:
                torn = True
            else:
                skipped.line(number, str(error))
    if not rows:
        raise BadInput(f"{path}: holds no complete row after its header; {len(header)} columns expected")
    values = {
        column.name: np.array([row[place] for row in rows], dtype=np.float64 if column.real else np.int64)
        for place, column in enumerate(columns)
    }
    notes = (f"the last line ({first_line + len(lines) - 1}) is torn and was dropped",) if torn else ()
    return Rows(np.array(numbers, dtype=np.int64), values, torn, (*notes, *skipped.notes()))


def _row(line: bytes, *, fields: int, wanted: Sequence[tuple[int, Column]]) -> list[float]:
    parts = line.rstrip(b"\r").split(b",")
    if len(parts) != fields:
        raise ValueError(f"{len(parts)} fields, {fields} expected: {shown(line)}")
    return [_value(parts[place].strip(), column) for place, column in wanted]


def _value(text: bytes, column: Column) -> float:
    if column.words:
        word = text.decode("utf-8", "backslashreplace")
        if word in column.words:
            return column.words[word]
    elif column.real:
        try:
            number = float(text)
        except ValueError:
            number = np.nan
        if np.isfinite(number):
            return number
    elif _INTEGER.fullmatch(text) and column.low <= int(text) <= column.high:
        return int(text)
    raise ValueError(f"{column.name} is {shown(text)}, {column.expected} expected")
