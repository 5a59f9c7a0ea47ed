"""Rows that were predicted before any of them was used: what to expect for machines that nobody here has seen.

unseen.csv holds those predictions, of two rounds. `python -m reports.field FILE.csv --json` made them: of the first,
the rows `markb-n48` to `r1rei-q4-fit` of field.csv, at commit 66d90843; of the second, all rows after these, at
e2b74069.
"""

from __future__ import annotations

import statistics
from pathlib import Path

import polars as pl

from reports.pages import joined, table

TABLE = Path(__file__).with_name("unseen.csv")
INTRO = """{rows} rows of {machines} machines were typed from issues, pull requests and people's own pages, in two
rounds; predicted; and only then added to the rows that everything here is tuned on. Those predictions are in
[unseen.csv](unseen.csv); rows that were later left out of fits count. The first round taught the program that RAM
beside a new card is mostly DDR5, and how Qwen3.8-Flash-Next slows down with its context; the second, that an engine
with all experts on the GPU has a cost of its own, what hyper-connections cost, and how fast Intel's cards are.
"""


def section(rows: pl.DataFrame, measured: pl.DataFrame) -> str:
    """The text and the table. rows: unseen.csv. measured: field.csv."""
    known = rows.join(measured.select("id", "machine_id", "strategy", "decode_tok_s"), on="id")
    groups = [("all", known)] + [(f"round {number}", known.filter(round=number)) for number in (1, 2)]
    strategies = known["strategy"].value_counts(sort=True)["strategy"].to_list()
    groups += [(name, known.filter(strategy=name)) for name in strategies]
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
