"""`reports/tuning/README.md`: how many runs a search needs until it meets one of the fastest settings."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import polars as pl

from reports.pages import joined, table

PAGE = Path(__file__).with_name("README.md")
RUNS, REAL = (Path(__file__).with_name(name) for name in ("runs.csv", "real.csv"))
WAYS = {"runs": "`sim tune`", "tpe": "Optuna's TPE", "at_random": "at random", "in_order": "in the table's order"}
MOST = 6
NEAR = 1.05  # times the seconds of the fastest
GRID = "grid"  # of REAL: what is no search
ON = "a made model of 1.25 GiB, a prompt of 640 tokens and an answer of 64"
INTRO = """\
# Runs until the fastest setting

Grids of settings that people published ([grids.csv](../../data/published/grids.csv): one machine, model, engine and
question each, five settings or more) are played as if the engine ran here: a run gives the row's speed, or its lack of
memory. Counted are the runs until one was within 3% of the grid's fastest. `sim tune` chooses by its predictions and
what the runs so far say. TPE is Optuna's, with its own choices after three random ones, in the mean of ten searches;
random is the expected number. A setting that ran before is no run. Layers on the CPU, micro-batches, caches, threads
and mapping are what it tries; builds, branches, types of keys and drafts it can only begin blindly, as the others do.

The guesses on threads, on how alike settings of a system are, and on when a full memory slows a run, were set on rows
of these grids and of reports/field, and so were many numbers of the machines; how two settings on one machine compare
was fitted on none.

```sh
python -m reports.tuning   # with optuna installed; runs.csv, and this page
```
"""


def scores(lines: pl.DataFrame) -> dict[str, dict[str, float]]:
    """The runs by way: median, share within MOST, the largest, and the sum."""
    return {
        name: {
            "median": float(lines[column].median()),  # type: ignore[arg-type]
            "within": float((lines[column] <= MOST).mean()),  # type: ignore[arg-type]
            "most": float(lines[column].max()),  # type: ignore[arg-type]
            "sum": float(lines[column].sum()),
        }
        for column, name in WAYS.items()
    }


class Played(NamedTuple):
    """A search on a real engine.

    first: runs until one was within NEAR of the fastest of all settings. runs: until it ended. slower: its choice, than
    the fastest.
    """

    first: int
    runs: int
    choice: str
    slower: float
    ended: str


def real_searches(real: pl.DataFrame) -> list[Played]:
    """The searches of REAL against every setting's mean time in the interleaved rounds."""
    grid = real.filter(what=GRID).group_by("setting").agg(pl.col("seconds").mean())
    seconds = dict(grid.iter_rows())
    fastest, played = min(seconds.values()), []
    for (_,), runs in real.filter(pl.col("what") != GRID).group_by(["what"], maintain_order=True):
        means = dict(runs.group_by("setting").agg(pl.col("seconds").mean()).iter_rows())
        choice = min(means, key=lambda setting: means[setting])
        near = [number for number, setting in enumerate(runs["setting"], 1) if seconds[setting] <= NEAR * fastest]
        first, slower = min(near, default=len(seconds)), seconds[choice] / fastest - 1
        played.append(Played(first, len(runs), choice, slower, runs["ended"][-1]))
    return played


def _real(real: pl.DataFrame) -> str:
    grid = real.filter(what=GRID)
    rows = sorted(grid.group_by("setting").agg(pl.col("seconds").mean()).iter_rows(), key=lambda row: float(row[1]))
    fastest = rows[0][1]
    return joined(
        "## On a real engine",
        f"llama-server b11434 on two cores without a GPU, {ON}: {len(rows)} settings, each measured in "
        f"{len(grid) // len(rows)} interleaved rounds, and three searches, each in a quarter of a round's time. "
        f"Rounds of one setting differed by up to {_apart(grid):.0%}.",
        table(
            ("search", f"runs until within {NEAR - 1:.0%}", "runs", "choice", "slower than the fastest", "ended"),
            [
                (str(number), str(one.first), str(one.runs), f"`{one.choice}`", f"{one.slower:.1%}", one.ended)
                for number, one in enumerate(real_searches(real), 1)
            ],
        ),
        table(
            ("setting", "seconds", "slower"),
            [(f"`{setting}`", f"{seconds:.1f}", f"{seconds / fastest - 1:.0%}") for setting, seconds in rows],
        ),
        "```sh\npython -m reports.tuning.real MODEL.gguf PROGRAM   # of sim model make-fixture --size seconds\n```",
    )


def _apart(grid: pl.DataFrame) -> float:
    of = grid.group_by("setting").agg(pl.col("seconds").max() / pl.col("seconds").min())["seconds"]
    return float(of.max()) - 1  # type: ignore[arg-type]


def markdown(lines: pl.DataFrame, real: pl.DataFrame) -> str:
    """The page."""
    known, other = lines.filter("known"), lines.filter(~pl.col("known"))
    each = table(
        ("grid", "question", "settings", "within 3%", *WAYS.values(), "ended before"),
        [
            (
                one["grid"],
                one["objective"],
                str(one["settings"]),
                str(one["within_3"]),
                *(f"{one[column]:.3g}" for column in WAYS),
                "yes" if one["missed"] else "",
            )
            for one in lines.to_dicts()
        ],
    )
    return joined(
        INTRO,
        f"## What it tries: {_what(known)}",
        _scored(known),
        f"## Something that it cannot predict as well: {_what(other)}",
        _scored(other),
        _real(real),
        "## Each grid",
        each,
    )


def _what(lines: pl.DataFrame) -> str:
    return f"{len(lines)} grids of {lines['who'].n_unique()} people"


def _scored(lines: pl.DataFrame) -> str:
    heads = ("search", "median runs", f"at most {MOST}", "most", "sum")
    rows = [
        (name, f"{of['median']:.1f}", f"{of['within']:.0%}", f"{of['most']:.0f}", f"{of['sum']:.0f}")
        for name, of in scores(lines).items()
    ]
    missed = f"In {lines['missed'].sum()} of them `sim tune` would have ended before; the rest then counts as random."
    return joined(table(heads, rows), missed)
