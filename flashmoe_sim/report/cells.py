"""Numbers in the format of a report's tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from flashmoe_sim.io.numbers import three
from flashmoe_sim.io.sizes import size
from flashmoe_sim.policies.bank import brief_bank
from flashmoe_sim.report.sections import Table

Row = Mapping[str, Any]
Column = tuple[str, str, Callable[[Any], str]]
MOST_ROWS = 800


def percent(share: float | None) -> str:
    """A share in per cent with one decimal, without the sign."""
    return "-" if share is None else f"{100 * share:.1f}"


def count(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def speed(tok_s: float | None) -> str:
    return "-" if tok_s is None else three(tok_s)


def interval(lo: float | None, hi: float | None) -> str:
    return "" if lo is None or hi is None else f"{three(lo)} to {three(hi)}"


def table(columns: Sequence[Column], rows: Sequence[Any]) -> Table:
    """A table of these rows; if there are more than 800, the first 800 and a line that says so."""
    cells = tuple(tuple(cell(row) for _, _, cell in columns) for row in rows[:MOST_ROWS])
    if (more := len(rows) - MOST_ROWS) > 0:
        cells += ((f"{more:,} more rows", *("" for _ in columns[1:])),)
    return Table(tuple((heading, side) for heading, side, _ in columns), cells)


def who(rows: Sequence[Row]) -> list[Column]:
    """Bank and policy, and a column for everything else that distinguishes the rows."""
    columns: list[Column] = [
        ("bank", "right", lambda row: brief_bank(row["bank"])),
        ("policy", "left", lambda row: row["policy"]),
    ]
    for heading, name in (("predictor", "prefetch"), ("contract", "contract"), ("scope", "scope")):
        if len({row[name] for row in rows}) > 1:
            columns.append((heading, "left", partial(_named, name)))
    return columns


def _named(name: str, row: Row) -> str:
    return row[name] or "-"


HITS: tuple[Column, ...] = (
    ("hit %", "right", lambda row: percent(row["hit_rate"])),
    ("best %", "right", lambda row: percent(row["best_hit_rate"])),
    ("misses", "right", lambda row: count(row["misses"])),
    ("read/tok", "right", lambda row: size(row["bytes_per_token"])),
    ("memory", "right", lambda row: size(row["resident_bytes"])),
)
SPEEDS: tuple[Column, ...] = (
    ("tok/s", "right", lambda row: speed(row["tok_s"])),
    ("90 % interval", "right", lambda row: interval(row["tok_s_lo"], row["tok_s_hi"]) or "does not fit"),
    ("bottleneck", "left", lambda row: row["bottleneck"] or "-"),
    ("memory", "right", lambda row: size(row["resident_bytes"])),
)
