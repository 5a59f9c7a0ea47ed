"""`reports/tuning/README.md`: how many runs a search needs until it meets one of the fastest settings."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from reports.pages import joined, table

PAGE = Path(__file__).with_name("README.md")
RUNS = Path(__file__).with_name("runs.csv")
WAYS = {"runs": "`sim tune`", "tpe": "Optuna's TPE", "at_random": "at random", "in_order": "in the table's order"}
MOST = 6
INTRO = """\
# Runs until the fastest setting

Grids of settings that people published ([grids.csv](../../data/published/grids.csv): one machine, model, engine and
question each, five settings or more) are played as if the engine ran here: a run gives the row's speed, or its lack of
memory. Counted are the runs until one was within 3% of the grid's fastest. `sim tune` chooses by its predictions and
what the runs so far say; TPE is Optuna's, with its own choices after three random ones, the mean of 20 searches; random
is the expected number. Settings that the program cannot predict (build, branch, key types, drafts) count too: there
it begins as blindly as the others.

The guesses on threads and the likeness of settings were set on rows of these grids and of reports/field, and so were
many of the machines' numbers; the ratio of two settings on one machine was fitted on none.

```sh
python -m reports.tuning   # with optuna installed; runs.csv, and this page
```
"""


def scores(lines: pl.DataFrame) -> pl.DataFrame:
    """The runs by way: median, share within MOST, the largest, and the sum."""
    return pl.DataFrame(
        [
            {
                "way": name,
                "median": lines[column].median(),
                "within": (lines[column] <= MOST).mean(),
                "most": lines[column].max(),
                "sum": lines[column].sum(),
            }
            for column, name in WAYS.items()
        ]
    )


def markdown(lines: pl.DataFrame) -> str:
    """The page."""
    heads = ("search", "median runs", f"at most {MOST}", "most", "sum")
    rows = [
        (one["way"], f"{one['median']:.1f}", f"{one['within']:.0%}", f"{one['most']:.0f}", f"{one['sum']:.0f}")
        for one in scores(lines).to_dicts()
    ]
    people = lines["who"].n_unique()
    title = f"{len(lines)} grids of {people} people, {lines['settings'].sum()} settings:"
    each = table(
        ("grid", "question", "settings", "within 3%", *WAYS.values()),
        [
            (
                one["grid"],
                one["objective"],
                str(one["settings"]),
                str(one["within_3"]),
                *(f"{one[column]:.3g}" for column in WAYS),
            )
            for one in lines.to_dicts()
        ],
    )
    return joined(INTRO, title, table(heads, rows), "## Each grid", each)
