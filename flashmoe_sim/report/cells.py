"""The columns of a report's tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from flashmoe_sim.io.sections import Column, Table, count, interval, percent, speed, table
from flashmoe_sim.io.sizes import size

Row = Mapping[str, Any]
MOST_ROWS = 800


def page_table(columns: Sequence[Column], rows: Sequence[Any]) -> Table:
    """A table of these rows; if there are more than 800, the first 800 and a line that says so."""
    made = table(columns, rows[:MOST_ROWS])
    if (more := len(rows) - MOST_ROWS) > 0:
        made = replace(made, rows=[*made.rows, (f"{more:,} more rows", *("" for _ in columns[1:]))])
    return made


def who(rows: Sequence[Row]) -> list[Column]:
    """Bank and policy, and a column for everything else that distinguishes the rows."""
    columns: list[Column] = [
        ("bank", "right", lambda row: row["bank"]),
        ("policy", "left", lambda row: row["policy"]),
    ]
    for heading, name in (("predictor", "prefetch"), ("contract", "contract"), ("scope", "scope")):
        if len({row[name] for row in rows}) > 1:
            columns.append((heading, "left", partial(_named, name)))
    return columns


def _named(name: str, row: Row) -> str:
    return row[name] or "-"


def _interval(row: Row) -> str:
    return "does not fit" if row["tok_s_lo"] is None else interval(row["tok_s_lo"], row["tok_s_hi"])


HITS: tuple[Column, ...] = (
    ("hit %", "right", lambda row: percent(row["hit_rate"])),
    ("best %", "right", lambda row: percent(row["best_hit_rate"])),
    ("misses", "right", lambda row: count(row["misses"])),
    ("read/tok", "right", lambda row: size(row["bytes_per_token"])),
    ("memory", "right", lambda row: size(row["resident_bytes"])),
)
SPEEDS: tuple[Column, ...] = (
    ("tok/s", "right", lambda row: speed(row["tok_s"])),
    ("90% interval", "right", _interval),
    ("bottleneck", "left", lambda row: row["bottleneck"] or "-"),
    ("memory", "right", lambda row: size(row["resident_bytes"])),
)
