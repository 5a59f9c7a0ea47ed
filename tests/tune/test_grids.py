"""Published grids as the engine of a search: the page is of its table, and the table of the program."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from reports.tuning.grids import grid_named
from reports.tuning.page import PAGE, REAL, RUNS, WAYS, markdown, real_searches, scores

LINES = pl.read_csv(RUNS)
KNOWN = LINES.filter("known")
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "tune.md"


def test_the_page_is_of_the_table() -> None:
    assert PAGE.read_text() == markdown(LINES, pl.read_csv(REAL))


@pytest.mark.parametrize("name", ["luka-flashnext-ncmoe-decode", "mcgyvr-srv2-threads-decode", "lucaspwo-qc30-ncmoe"])
def test_the_table_is_of_the_program(name: str) -> None:
    (line,) = LINES.filter(grid=name).to_dicts()
    grid = grid_named(name)
    assert grid is not None
    assert (*grid.runs(), grid.in_order()) == (line["runs"], line["missed"], line["in_order"])
    assert round(grid.at_random(), 2) == line["at_random"]
    assert (len(grid.outcomes), len(grid.good)) == (line["settings"], line["within_3"])


def test_a_few_runs_are_enough() -> None:
    of = scores(KNOWN)
    ours, tpe = of[WAYS["runs"]], of[WAYS["tpe"]]
    assert len(KNOWN) >= 25
    assert ours["median"] <= 3
    assert ours["within"] >= 0.9
    assert ours["sum"] < 0.6 * tpe["sum"]


def test_the_guide_says_how_few() -> None:
    of = scores(KNOWN)
    ours, tpe = (of[WAYS[name]]["median"] for name in ("runs", "tpe"))
    told = f"within 3% of the fastest took it {ours:.1f} runs in the median, Optuna's TPE {tpe:.1f}"
    assert told in " ".join(GUIDE.read_text().split())


def test_a_real_engine_is_tuned_in_a_quarter_of_its_runs() -> None:
    real = pl.read_csv(REAL)
    settings, played = real.filter(what="grid")["setting"].n_unique(), real_searches(real)
    assert len(played) == 3
    assert all(one.slower <= 0.05 and one.first <= settings / 4 for one in played)
    assert all(one.runs <= settings / 4 + 1 for one in played)
