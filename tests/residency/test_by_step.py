"""Counts by step and by request: they add up to the replay, in the order of the trace."""

from __future__ import annotations

import polars as pl
import pytest

from flashmoe_sim import api
from flashmoe_sim.io.errors import Incomplete
from flashmoe_sim.schema import OF_STEPS, REQUEST_COLUMNS, STEP_COLUMNS
from flashmoe_sim.trace.merge import concat, interleave

SUMS = [column.name for column in OF_STEPS if column.dtype == "int"]


def merged(how: str) -> api.Workload:
    parts = [api.load_trace(name).trace for name in ("python-256", "prose-256")]
    return api.load_trace(concat(parts) if how == "concat" else interleave(parts, every=50), model=None)


@pytest.mark.parametrize("name", list(api.catalog()))
def test_steps_add_up_to_the_replay(name: str) -> None:
    asked = {"bank": 16, "policy": "lfu-decay", "contract": "atomic", "prefetch": "markov"}
    (whole,) = api.replay(name, **asked).to_dicts()
    steps = api.replay(name, **asked, by="step")
    assert steps.columns == [column.name for column in STEP_COLUMNS]
    for column in SUMS:
        assert steps[column].sum() == whole[column], column
    assert steps["id"].unique().to_list() == [whole["id"]]
    assert steps["step"].to_list() == api.load_trace(name).trace.steps[_changes(steps)].tolist()


def _changes(steps: pl.DataFrame) -> pl.Series:
    return steps["calls"].cum_sum() - steps["calls"]


@pytest.mark.parametrize("how", ["concat", "interleave"])
def test_requests_add_up_too_and_come_in_order(how: str) -> None:
    workload = merged(how)
    asked = {"bank": 32, "contract": "atomic"}
    steps = api.replay(workload, **asked, by="step")
    requests = api.replay(workload, **asked, by="request")
    assert requests.columns == [column.name for column in REQUEST_COLUMNS]
    assert requests["request"].to_list() == steps["request"].unique(maintain_order=True).to_list()
    assert requests.height == 2
    for row in requests.iter_rows(named=True):
        own = steps.filter(pl.col("request") == row["request"])
        assert row["steps"] == own.height
        assert [row[column] for column in SUMS if own[column].null_count() == 0] == [
            own[column].sum() for column in SUMS if own[column].null_count() == 0
        ]
        assert row["hit_rate"] == pytest.approx(row["hits"] / row["requests"])


def test_a_trace_without_requests_says_so() -> None:
    with pytest.raises(Incomplete, match="records no requests"):
        api.replay("python-256", bank=16, by="request")
