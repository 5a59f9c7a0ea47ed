"""Whether systems become faster with time: errors by the day on which people published, each of whom counts once."""

from __future__ import annotations

import math
import re
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import date
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.stats import t as student

from flashmoe_sim.field.rows import FieldRow, source_of
from reports.pages import joined, table

LEAST_ROWS, LEAST_PEOPLE = 15, 5
MISSED = 0.1  # by all intervals together
YEAR = 365.25
TEXT = """Engines get faster, so is a row of last year too slow for this year's build? Per system, each person is one
point, the median error and day of their rows. The line through the points gives how many times as fast the last day is
as the first, beside predictions; intervals hold for all systems together in nine of ten such tables. The last two
columns are the median error of a person who is left out, by the mean of the others and by their line.
"""
HEAD = ("system", "people", "days", "times", "interval", "error by the mean", "error by the line")


class Trend(NamedTuple):
    """How the logarithm of measured over predicted speed changes from the first day to the last, and its interval.

    by_mean, by_line: the median error of people who are left out.
    """

    people: int
    days: int
    change: float
    lo: float
    hi: float
    by_mean: float
    by_line: float


def day_of(row: FieldRow) -> date | None:
    """The day on which a row was measured or published; the middle of a month told alone, None if neither is."""
    found = re.match(r"(\d{4})-(\d\d)(?:-(\d\d))?", row.date)
    return None if found is None else date(int(found[1]), int(found[2]), int(found[3] or 15))


def points(rows: Mapping[str, FieldRow], lines: pl.DataFrame) -> dict[str, list[tuple[float, float]]]:
    """Years and logarithms of measured over predicted speed by system, one pair for each person.

    lines: residuals.csv of systems, on parts.
    """
    found = defaultdict[str, dict[str, list[tuple[float, float]]]](lambda: defaultdict(list))
    for one in lines.iter_rows(named=True):
        row = rows[one["id"]]
        if day := day_of(row):
            off = math.log(one["measured_tok_s"] / one["tok_s"])
            found[one["system"]][source_of(row)].append((day.toordinal() / YEAR, off))
    return {
        system: [
            (statistics.median(day for day, _ in of), statistics.median(off for _, off in of)) for of in people.values()
        ]
        for system, people in found.items()
        if len(people) >= LEAST_PEOPLE and sum(map(len, people.values())) >= LEAST_ROWS
    }


def trend(of: Sequence[tuple[float, float]], *, tables: int) -> Trend:
    """The trend of one system's points. tables: how many systems are looked at, for the interval."""
    times, offs = np.array(of).T
    years = float(np.ptp(times))
    change, sd = (years * one for one in _line(times, offs)[1:])
    reach = sd * student.ppf(1 - MISSED / tables / 2, len(of) - 2)
    by_mean, by_line = [], []
    for number in range(len(of)):
        others = np.arange(len(of)) != number
        start, rise, _ = _line(times[others], offs[others])
        by_mean.append(_error(offs[number] - offs[others].mean()))
        by_line.append(_error(offs[number] - start - rise * times[number]))
    errors = map(statistics.median, (by_mean, by_line))
    return Trend(len(of), round(YEAR * years), change, change - reach, change + reach, *errors)


def _line(times: NDArray[np.float64], offs: NDArray[np.float64]) -> tuple[float, float, float]:
    """Least squares: the start, the slope and the slope's standard error."""
    here = times - times.mean()
    square = float(here @ here)
    slope = float(here @ offs) / square
    rest = offs - offs.mean() - slope * here
    return float(offs.mean() - slope * times.mean()), slope, math.sqrt(float(rest @ rest) / (len(offs) - 2) / square)


def _error(off: float) -> float:
    """|predicted / measured - 1|."""
    return abs(math.expm1(-off))


def section(rows: Sequence[FieldRow], lines: pl.DataFrame) -> str:
    """The text and the table. lines: residuals.csv of systems, on parts."""
    of = points({row.id: row for row in rows}, lines)
    found = {name: trend(some, tables=len(of)) for name, some in sorted(of.items(), key=lambda item: -len(item[1]))}
    cells = [
        (
            f"`{name}`",
            one.people,
            one.days,
            f"{math.exp(one.change):.2f}",
            f"{math.exp(one.lo):.2f} to {math.exp(one.hi):.2f}",
            f"{one.by_mean:.0%}",
            f"{one.by_line:.0%}",
        )
        for name, one in found.items()
    ]
    sure = [f"`{name}`" for name, one in found.items() if one.lo > 0 or one.hi < 0]
    verdict = f"Sure of {', '.join(sure)}." if sure else "No trend is sure, so predictions have none."
    return joined(TEXT, table(HEAD, cells), verdict)
