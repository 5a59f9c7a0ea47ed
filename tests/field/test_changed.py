"""Two tables of results are compared row by row, and the interval is over machines."""

from __future__ import annotations

import polars as pl
import pytest

from reports.field.changed import changed

BEFORE = pl.DataFrame({"id": ["a", "b", "c", "d"], "tok_s": [11.0, 12.0, 9.0, None]})
AFTER = pl.DataFrame(
    {
        "id": ["a", "b", "c", "d", "e"],
        "machine_id": ["one", "one", "two", "two", "two"],
        "measured_tok_s": [10.0] * 5,
        "tok_s": [10.5, 11.0, 8.0, 10.0, 10.0],
    }
)


def test_rows_of_both_tables_are_compared() -> None:
    found = changed(BEFORE, AFTER)
    assert (found.rows, found.machines, found.better, found.worse) == (3, 2, 1, 1)
    assert (found.before, found.after) == (pytest.approx(0.1), pytest.approx(0.1))  # of 10, 20, 10% and 5, 10, 20%
    assert found.lo == pytest.approx(-0.075)  # machine one alone
    assert found.hi == pytest.approx(0.1)  # machine two alone


def test_equal_tables_have_no_difference() -> None:
    found = changed(AFTER, AFTER)
    assert (found.rows, found.lo, found.hi, found.better, found.worse) == (5, 0.0, 0.0, 0, 0)
