"""Rows that were answered before anything of them was used: what to expect of machines that nobody here has seen.

first.csv has those answers with the commit that gave them. Those of 66d90843 and e2b74069 are of a predictor that the
project no longer has, which had a fitted cost for each engine; the later ones are the commands' own.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from flashmoe_sim.field.rows import FieldRow, source_of
from reports.field.given import cells
from reports.field.residuals import score
from reports.pages import joined, table

TABLE = Path(__file__).with_name("first.csv")
LEAST_ROWS = 3
OLD = ("66d90843", "e2b74069")
INTRO = """Rows were typed from issues, pull requests and people's own pages, answered, and only then used.
[first.csv](first.csv) has those answers with the commit that gave them. The rows of the first two lines were answered
by a predictor that is no more; the others by the commands, which no constant of theirs had been set on.
"""
HEAD = ("rows", "number", "median error", "within 2x", "inside", "ends apart", "inside today")


def joined_with(rows: Sequence[FieldRow], lines: pl.DataFrame) -> pl.DataFrame:
    """First answers with what was measured. lines: first.csv."""
    known = [(row.id, source_of(row), row.strategy, row.decode_tok_s) for row in rows]
    measured = pl.DataFrame(known, ("id", "source", "strategy", "measured_tok_s"), orient="row")
    return lines.join(measured, on="id")


def section(rows: Sequence[FieldRow], lines: pl.DataFrame, today: pl.DataFrame) -> str:
    """The text and the table. lines: first.csv. today: residuals.csv on parts."""
    found = joined_with(rows, lines)
    now = today.select("id", pl.col("without_source_lo").alias("now_lo"), pl.col("without_source_hi").alias("now_hi"))
    old = pl.col("commit").is_in(OLD)
    asked, plain = found.filter(~old & pl.col("system").is_not_null()), found.filter(~old & pl.col("system").is_null())
    groups = {f"of `{commit}`": found.filter(commit=commit) for commit in OLD}
    groups |= {"of a system": asked, "of a plain engine": plain}
    groups |= {
        f"`{name}`": asked.filter(system=name)
        for name in asked["system"].value_counts().sort("count", "system", descending=[True, False])["system"]
    }
    lines_of = []
    for name, some in groups.items():
        if len(some) < LEAST_ROWS:
            continue
        held = some.join(now, on="id")
        today_inside = statistics.fmean(held["measured_tok_s"].is_between(held["now_lo"], held["now_hi"]))
        lines_of.append((name, *cells(score(some)), f"{today_inside:.0%}"))
    return joined(INTRO, table(HEAD, lines_of))
