"""How often made traces hit: the written table is that of today, and published rates are met in the mean."""

from __future__ import annotations

from statistics import fmean

import polars as pl
import pytest

from reports.field import lent


@pytest.mark.parametrize("name", ["ds4-32", "q36-10.65%"])
def test_a_row_of_the_table_is_computed_again(name: str) -> None:
    rate = next(rate for rate in lent.published() if rate.name == name)
    row = pl.read_csv(lent.TABLE).row(by_predicate=pl.col("id") == name, named=True)
    assert (row["model"], row["policy"], row["published"]) == (rate.model, rate.policy, rate.hit_rate)
    assert round(lent.hit_rate(rate), 4) == row["made"]
    assert round(lent.hit_rate(rate, ["gpt-oss-120b"]), 4) == row["alone"] > row["made"]


def test_made_traces_hit_as_published() -> None:
    """LRU banks without a bias; learned lists less often than made traces say. One recording alone hits too often."""
    found = pl.read_csv(lent.TABLE)
    assert found["id"].to_list() == [rate.name for rate in lent.published()]
    for policy, most_bias, most_rms in (("lru", 0.1, 0.6), ("half", 0.5, 1.0)):
        made = lent.differences(found, policy)
        assert abs(fmean(map(fmean, made.values()))) < most_bias
        assert fmean(fmean(each**2 for each in of_model) for of_model in made.values()) < most_rms**2
        alone = lent.differences(found, policy, "alone")
        assert fmean(map(fmean, alone.values())) > 1
