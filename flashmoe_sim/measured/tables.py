"""Tables, rows of CSV and lines of JSON, as programs print them among other lines."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from typing import Any

from flashmoe_sim.io.sizes import decimal
from flashmoe_sim.measured.value import MOST_TOKENS

MOST_LINE = 4000  # letters; a longer line is no row of a table


def tables(text: str, *needed: str) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows of each table with these columns, by column, with the numbers of their lines.

    Anything may stand before the first bar of a line, and between the rows. A line of dashes follows a table's header.
    """
    names: list[str] = []
    lines = text.split("\n")
    of_lines = [cells_of(line) for line in lines]
    for number, (line, cells, after) in enumerate(zip(lines, of_lines, [*of_lines[1:], []], strict=True), 1):
        if set(needed) <= set(cells):
            names = cells
        elif _are_dashes(after) and cells:
            names = []
        elif names and cells and not _are_dashes(cells):
            if len(line[:MOST_LINE].rstrip().split("|")) == len(names) + 2:  # its last cells may be empty
                cells.extend([""] * (len(names) - len(cells)))
            if len(cells) >= len(names) and not any(cells[len(names) :]):
                yield number, dict(zip(names, cells, strict=False))


def cells_of(line: str) -> list[str]:
    """The cells of a line behind its first bar."""
    cells = [cell.strip() for cell in line[:MOST_LINE].replace("\xa0", " ").split("|")[1:]]
    while cells and not cells[-1].strip("\\"):
        cells.pop()
    return cells


def _are_dashes(cells: list[str]) -> bool:
    return len(cells) > 1 and all(cell and set(cell) <= set("-: ") for cell in cells)


def line_objects(text: str, *needed: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The JSON objects, each on a line of its own, that have these keys."""
    for number, line in enumerate(text.split("\n"), 1):
        begin, end = line.find("{"), line.rfind("}")
        if begin >= 0 and all(f'"{name}"' in line for name in needed):
            try:
                found = json.loads(line[begin : end + 1])
            except (ValueError, RecursionError):
                continue
            if isinstance(found, dict) and set(needed) <= set(found):
                yield number, found


def real(value: Any) -> float | None:
    """A finite number, or the text of one."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    found = decimal(str(value).strip())
    return None if found is None or abs(found) == float("inf") else found


def whole(value: Any) -> int | None:
    """A number of tokens, or the text of one, perhaps with commas between thousands."""
    found = real(value.replace(",", "") if isinstance(value, str) else value)
    return int(found) if found is not None and found == int(found) and 0 <= found <= MOST_TOKENS else None


def csv_rows(text: str, *needed: str) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows of a CSV with these columns, by column, with the numbers of their lines; `#` begins a comment.

    Rows of another length, and a header that comes again, are left out.
    """
    names: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("#") or not line.strip():
            continue
        try:
            cells = [cell.strip() for cell in next(csv.reader([line.rstrip("\r")]))]
        except csv.Error:
            continue
        if set(needed) <= set(cells):
            names = cells
        elif names and len(cells) <= len(names):
            yield number, dict(zip(names, [*cells, *[""] * len(names)], strict=False))
