"""Rows for figures, and what a figure holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars

from flashmoe_sim.report.figures import save
from flashmoe_sim.report.figures.style import Chart
from flashmoe_sim.schema import RESULT_COLUMNS, frame

Row = dict[str, Any]
HOSTILE = (
    "<script>alert(1)</script>",
    "$x_1$ & 'y' \"z\" \\",
    "n" * 300,
    "\u202eevil\u202c\x1b[31m",
    "{{7*7}}\n<b>",
    "",
)


def row(bank: int | str, policy: str = "lru", **changes: Any) -> Row:
    known = {"bank": str(bank), "policy": policy, "trace": "a trace", "trace_id": "1", "contract": "atomic"}
    known |= {"prefetch": "none", "scope": "layer"}
    return known | {"hit_rate": 0.5, "best_hit_rate": 0.75, "resident_bytes": 3 << 30} | changes


def timed(bank: int | str, policy: str = "lru", tok_s: float | None = 8.0, **changes: Any) -> Row:
    ends = {} if tok_s is None else {"tok_s_lo": tok_s - 1, "tok_s_hi": tok_s + 2}
    return row(bank, policy, machine="a machine", tok_s=tok_s, **ends, **changes)


def results(*rows: Row) -> polars.DataFrame:
    return frame(rows, RESULT_COLUMNS)


def rows_of(chart: Chart, *columns: str) -> list[Row]:
    """All rows of a chart's data that have these columns, without repeats."""
    found: list[Row] = []
    for data in chart.to_dict()["datasets"].values():
        found += [one for one in data if set(columns) <= set(one) and one not in found]
    return found


def svg(chart: Chart, folder: Path) -> str:
    return save(chart, folder / "figure.svg").read_text("utf-8")
