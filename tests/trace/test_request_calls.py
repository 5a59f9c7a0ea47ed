"""Rows of recorded requests in the order of calls, against a plain twin."""

from __future__ import annotations

import numpy as np
import pytest

from flashmoe_sim.trace.request_calls import REPEATED, lay_out, mark_repeats


@pytest.mark.parametrize(("dtype", "k"), [("uint8", 3), ("uint8", 8), ("uint16", 6), ("int16", 1), ("float32", 3)])
def test_order_of_calls(dtype: str, k: int) -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(0, 99, (20, 5, k)).astype(dtype)
    rows, layers = np.array([2, 3, 5, 6, 7, 11, 19]), np.array([0, 2, 4])
    tokens = np.array([3, 2, 1, 1], np.int32)
    out = np.empty(7 * 3 * k, np.float32 if dtype == "float32" else np.int16)
    lay_out(out, values, rows, layers, tokens)
    steps = [[2, 3, 5], [6, 7], [11], [19]]
    assert out.tolist() == [one for step in steps for layer in layers for row in step for one in values[row, layer]]


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint16", "int32", "int64"])
def test_rows_with_an_id_twice(dtype: str) -> None:
    rng = np.random.default_rng(1)
    low = 0 if dtype.startswith("u") else -2
    for k in (1, 2, 8):
        expert = rng.integers(low, 24, (400, k)).astype(dtype)
        state = np.zeros(len(expert), np.uint8)
        mark_repeats(expert, state, np.full(20, -1, np.int64))
        seen = [[one for one in row if 0 <= one < 20] for row in expert.tolist()]
        assert state.tolist() == [REPEATED if len(set(row)) < len(row) else 0 for row in seen]
