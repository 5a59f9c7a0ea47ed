"""What one measured row of a machine teaches about its other rows."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from flashmoe_sim.machines.learnt import learn
from reports.field import given
from reports.field.residuals import score


def test_one_row_of_a_machine_halves_the_error_of_the_others() -> None:
    lines = pl.read_csv(given.TABLE).filter(pl.col("system").is_not_null())
    before = lines.select("measured_tok_s", *(pl.col(f"before_{name}").alias(name) for name in ("tok_s", "lo", "hi")))
    without, found = score(before), score(lines)
    assert found.rows > 400
    assert found.error <= 0.13 < without.error
    assert 0.87 <= found.inside <= 0.93
    assert found.apart <= 2.9 < without.apart


def test_conditioning_is_that_of_draws() -> None:
    """The joint distribution of a million draws, of which those near the measurement are kept."""
    loads = [{"a": 0.5, "b": 0.3}, {"a": 0.2, "c": 0.4}]
    learnt = learn(loads[:1], [0.6], [0.2])
    random = np.random.default_rng(1)
    unknown = dict(zip("abc", random.standard_normal((3, 1_000_000)), strict=True))
    first, second = (sum(load * unknown[name] for name, load in each.items()) for each in loads)
    kept = second[np.abs(first + 0.2 * random.standard_normal(1_000_000) - 0.6) < 0.01]
    mean, variance = learnt.of(loads[1])
    assert mean == pytest.approx(kept.mean(), abs=0.01)
    assert variance == pytest.approx(kept.var(), rel=0.03)
