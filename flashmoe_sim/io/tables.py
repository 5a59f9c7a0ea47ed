"""Published tables as text: CSV with commas, semicolons or tabs, or markdown; and CSV for spreadsheets."""

from __future__ import annotations

import csv
import io
import re
from typing import TYPE_CHECKING

from flashmoe_sim.io.errors import Malformed
from flashmoe_sim.io.printable import printable
from flashmoe_sim.io.sizes import decimal

if TYPE_CHECKING:
    import polars as pl


_SEPARATORS = ",;\t"
# Our name for a heading, which is in lower case with underscores.
_NAMES = {"hit_rate_pct": "hit_pct", "top_k": "topk", "tok_per_s": "tok_s", "tokens_per_s": "tok_s"}
_NAMES |= {f"decode_{name}": f"decode_{own}" for name, own in _NAMES.items() if own == "tok_s"}


def parse_table(text: str, *, where: str) -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    """The columns of a table, and its rows with their line numbers; cells are stripped of blanks.

    A column may be written in various ways: `Hit_Pct`, `hit rate (%)`, `tok/s`, `top-k`; case and marks are ignored.
    where: the file, for messages.
    Raises BadInput for text that is not a table, a duplicate column, a table without rows, and a row with more or fewer
    cells than the header.
    """
    lines = _markdown(text) if any(line.lstrip().startswith("|") for line in text.splitlines()) else _csv(text, where)
    if len(lines) < 2:
        raise Malformed(f"{where}: no rows under its header; expected a table as CSV")
    columns = [_name(cell) for cell in lines[0][1]]
    for column in columns:
        if column and columns.count(column) > 1:
            raise Malformed(f"{where}: the column {column} is there twice; leave one of them out")
    for number, cells in lines[1:]:
        if len(cells) != len(columns):
            raise Malformed(f"{where}: line {number}: {len(cells)} cells; expected {len(columns)}, as in the header")
    return columns, [(number, dict(zip(columns, cells, strict=True))) for number, cells in lines[1:]]


def share_of(column: str, cell: str) -> float | None:
    """The share, which should be 0 to 1, in a cell of hit_rate (`0.588` or `58.8%`) or hit_pct (`58.8` or `58.8%`)."""
    number = decimal(cell.removesuffix("%").rstrip())
    per_cent = column == "hit_pct" or cell.endswith("%")
    return None if number is None else number / (100 if per_cent else 1)


def _name(heading: str) -> str:
    worded = heading.strip("*` ").lower().replace("%", " pct ").replace("/", " per ")
    name = re.sub(r"[^a-z0-9]+", "_", worded).strip("_")
    return _NAMES.get(name, name)


def _markdown(text: str) -> list[tuple[int, list[str]]]:
    lines = []
    for number, line in enumerate(text.splitlines(), start=1):
        row = line.strip()
        if row.startswith("|"):
            cells = [cell.strip("*` \t") for cell in row.strip("|").split("|")]
            if not all(re.fullmatch(":?-+:?", cell) for cell in cells):
                lines.append((number, cells))
    return lines


def _csv(text: str, where: str) -> list[tuple[int, list[str]]]:
    header = next((line for line in text.splitlines() if line.strip()), "")
    separator = max(_SEPARATORS, key=header.count)
    reader = csv.reader(text.splitlines(keepends=True), delimiter=separator, strict=True)
    try:
        return [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader if cells]
    except csv.Error as error:
        raise Malformed(f"{where}: line {reader.line_num}: not CSV ({error}); expected a table as CSV") from None


FORMULA = ("=", "+", "-", "@", "\t", "\r")  # with which a cell becomes a formula


def as_csv(table: pl.DataFrame) -> bytes:
    """The table as CSV, with escapes for control characters, and `'` before a text that would be a formula."""
    import polars as pl

    texts = [name for name, kind in table.schema.items() if kind == pl.String]
    safe = table.with_columns(pl.col(name).map_elements(_plain, return_dtype=pl.String) for name in texts)
    buffer = io.BytesIO()
    safe.write_csv(buffer)
    return buffer.getvalue()


def _plain(text: str) -> str:
    return f"'{printable(text)}" if text.startswith(FORMULA) and decimal(text) is None else printable(text)
