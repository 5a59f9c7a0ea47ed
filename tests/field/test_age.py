"""Whether systems become faster with time, and how sure that is."""

from __future__ import annotations

import math
from datetime import date
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from reports.field import age
from reports.field.report import judged_rows
from reports.field.residuals import known, on_parts
from tests.field.builders import residuals, row


def test_a_day_is_told_in_full_by_its_month_or_not_at_all(tmp_path: Path) -> None:
    days = {"2026-10-04": date(2026, 10, 4), "2026-10": date(2026, 10, 15), "2026-10-04/05": date(2026, 10, 4)}
    for told, day in {**days, "": None, "spring": None}.items():
        assert age.day_of(row(tmp_path, date=told)) == day


def test_a_line_is_its_own_trend_and_noise_is_none() -> None:
    line = [(2026 + year / 10, 0.3 * year) for year in range(6)]
    found = age.trend(line, tables=1)
    assert (found.people, found.days) == (6, 183)
    assert (found.change, found.lo, found.hi) == pytest.approx((1.5, 1.5, 1.5), abs=1e-6)
    assert found.by_line == pytest.approx(0, abs=1e-6)
    assert found.by_mean > 0.3
    up_and_down = [(2026 + number, (-1) ** number * 0.2) for number in range(8)]
    assert age.trend(up_and_down, tables=1).lo < 0 < age.trend(up_and_down, tables=1).hi


def test_an_interval_holds_for_all_tables_together() -> None:
    """Of 400 tables of nine systems without a trend, about a tenth have an interval without zero."""
    rng = np.random.default_rng(4)
    wrong = 0
    for _ in range(400):
        found = [age.trend([*zip(rng.random(8), rng.normal(size=8), strict=True)], tables=9) for _ in range(9)]
        wrong += any(one.lo > 0 or one.hi < 0 for one in found)
    assert 20 <= wrong <= 62


def test_each_person_is_one_point(tmp_path: Path) -> None:
    """The median day and error of their rows; a system of few people has none."""
    rows, cells = {}, []
    for person in range(5):
        for number in range(3):
            name = f"{person}-{number}"
            rows[name] = row(tmp_path, id=name, source=f"you{person}/runs", date=f"2026-0{person + 1}-1{number}")
            cells.append({"id": name, "system": "cpu", "measured_tok_s": 2.0 ** (person + number), "tok_s": 2.0})
    found = age.points(rows, pl.DataFrame([*cells, {**cells[0], "system": "placed"}]))
    assert list(found) == ["cpu"]
    assert [off for _, off in found["cpu"]] == pytest.approx([math.log(2) * person for person in range(5)])
    assert found["cpu"][1][0] * age.YEAR == pytest.approx(date(2026, 2, 11).toordinal())


def test_the_verdict_is_that_of_the_intervals() -> None:
    rows, lines = judged_rows(), known(on_parts(residuals()))
    of = age.points({one.id: one for one in rows}, lines)
    found = {name: age.trend(some, tables=len(of)) for name, some in of.items()}
    section = age.section(rows, lines)
    assert len(found) >= 9
    assert all(f"| `{name}` | {one.people} | {one.days} |" in section for name, one in found.items())
    assert ("No trend is sure" in section) == all(one.lo < 0 < one.hi for one in found.values())
