"""Tables of rows, and the format of the numbers in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from flashmoe_sim.io.numbers import three
from flashmoe_sim.io.sections import Table

Column = tuple[str, str, Callable[[Any], str]]  # heading, `left` or `right`, and a row's cell
UNKNOWN = "-"
WAITS = {  # by part of a token's time: what it waits for, in a table and in a sentence
    "read": ("reads", "reading from storage"),
    "upload": ("uploads", "uploading to the GPU"),
    "cpu": ("the CPU", "computing experts on the CPU"),
    "compute": ("computing", "computing"),
    "host": ("the host", "the host's own work"),
}


def table(columns: Sequence[Column], rows: Iterable[Any], **options: Any) -> Table:
    """A table of these rows. options: title, caption and dispensable columns."""
    cells = [tuple(cell(row) for _, _, cell in columns) for row in rows]
    return Table([(heading, side) for heading, side, _ in columns], cells, **options)


def pairs(rows: Iterable[Sequence[str]], **options: Any) -> Table:
    """Names, their values, and remarks if there are any; without headings."""
    rows = list(rows)
    sides = ("left", "right", "left")[: len(rows[0])]
    return Table([("", side) for side in sides], rows, **options)


def percent(share: float | None) -> str:
    """A share in per cent with one decimal, without the sign."""
    return UNKNOWN if share is None else f"{100 * share:.1f}"


def rate(share: float | None) -> str:
    """A share in per cent with one decimal and the sign."""
    return UNKNOWN if share is None else f"{percent(share)}%"


def count(number: float | None) -> str:
    """A number with thousands separators."""
    return UNKNOWN if number is None else f"{number:,}"


def decimals(number: float | None, digits: int = 2) -> str:
    """A number with so many decimals; zero has no sign."""
    return UNKNOWN if number is None else f"{number:z.{digits}f}"


def signed(number: float, digits: int = 1) -> str:
    """A number with its sign, which is + for zero."""
    return f"{round(number, digits) + 0.0:+.{digits}f}"


def speed(tok_s: float | None) -> str:
    """Tokens a second in three digits."""
    return UNKNOWN if tok_s is None else three(tok_s)


def brief_interval(lo: float | None, hi: float | None) -> str:
    """`7.6-8.7`, for a table of many columns."""
    return "" if lo is None or hi is None else f"{three(lo)}-{three(hi)}"


def interval(lo: float | None, hi: float | None) -> str:
    """`7.6 to 8.7`."""
    return UNKNOWN if lo is None or hi is None else f"{three(lo)} to {three(hi)}"
