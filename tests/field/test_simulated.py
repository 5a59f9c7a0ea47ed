"""Measurements drawn from the model: intervals hold and narrow with each; wrong ones are doubted, right ones seldom."""

from __future__ import annotations

import numpy as np
import polars as pl

from reports.field.simulated import MOST_MEASURED, TABLE, cases

FEW = 6


def test_intervals_hold_and_narrow() -> None:
    found = pl.read_csv(TABLE)
    widths = []
    for measured in range(MOST_MEASURED + 1):
        rows = found.filter(measured=measured)
        off, lo, hi = (rows[name].to_numpy() for name in ("off", "lo", "hi"))
        share = np.mean((lo <= off) & (off <= hi))
        assert 0.86 <= share <= 0.94, (measured, share)
        widths.append(np.median(hi - lo))
    assert widths == sorted(widths, reverse=True)
    doubted, wrong = (found[name].drop_nulls().mean() for name in ("doubted", "wrong_doubted"))
    assert doubted < 0.07
    assert wrong > 0.925


def test_the_table_is_that_of_today() -> None:
    today, table = cases(FEW), pl.read_csv(TABLE).filter(pl.col("case") < FEW)
    for name in ("off", "lo", "hi"):
        np.testing.assert_allclose(today[name].to_numpy(), table[name].to_numpy(), atol=2e-3)
