"""Rows that were predicted before any of them was used: what to expect for machines that nobody here has seen.

unseen.csv holds those predictions. `python -m reports.field FILE.csv --json` made them for the rows `markb-n48` to
`r1rei-q4-fit` of field.csv, at commit 66d90843, before one of them was in field.csv.
"""

from __future__ import annotations

import statistics
from pathlib import Path

import polars as pl

from reports.pages import joined, table

TABLE = Path(__file__).with_name("unseen.csv")
INTRO = """{rows} rows of {machines} machines were typed from issues, pull requests and people's own pages, then
predicted, and only then added to the rows that everything here is tuned on. Those predictions are in
[unseen.csv](unseen.csv); rows that were later left out of fits count. They are of the program before these rows taught
it that RAM beside a new card is mostly DDR5, and how Qwen3.8-Flash-Next slows down with its context.
"""


def section(rows: pl.DataFrame, measured: pl.DataFrame) -> str:
    """The text and the table. rows: unseen.csv. measured: field.csv."""
    known = rows.join(measured.select("id", "machine_id", "strategy", "decode_tok_s"), on="id")
    groups = [("all", known)] + [
        (name, known.filter(strategy=name)) for name in known["strategy"].value_counts(sort=True)["strategy"].to_list()
    ]
    return joined(
        INTRO.format(rows=len(known), machines=known["machine_id"].n_unique()),
        table(
            ("rows", "number", "median error", "within 2x", "in the interval", "ends apart"),
            [(name, len(group), *_scores(group)) for name, group in groups],
        ),
    )


def _scores(rows: pl.DataFrame) -> tuple[str, str, str, str]:
    ratio = (rows["tok_s"] / rows["decode_tok_s"]).to_list()
    within, inside = (
        statistics.fmean(held)
        for held in ([0.5 <= one <= 2 for one in ratio], rows["decode_tok_s"].is_between(rows["lo"], rows["hi"]))
    )
    error, apart = (
        statistics.median(values) for values in ([abs(one - 1) for one in ratio], (rows["hi"] / rows["lo"]).to_list())
    )
    return f"{error:.0%}", f"{within:.0%}", f"{inside:.0%}", f"{apart:.1f}x"
