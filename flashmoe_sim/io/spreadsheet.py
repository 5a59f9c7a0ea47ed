"""CSV files that a terminal and a spreadsheet show as text, whatever names are in them."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from flashmoe_sim.io.numbers import decimal
from flashmoe_sim.io.printable import printable

if TYPE_CHECKING:
    import polars as pl

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
