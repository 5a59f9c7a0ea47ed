"""Rows of recorded requests: repeats and order, against plain twins."""

from __future__ import annotations

import numpy as np
import pytest

from flashmoe_sim.trace.counting import find_repeats
from flashmoe_sim.trace.request_calls import lay_out


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16"])
def test_repeats(dtype: str) -> None:
    rng = np.random.default_rng(0)
    for k in (2, 3, 8):
        ids = rng.integers(-3 if dtype == "int16" else 0, 30, (500, k)).astype(dtype)
        repeats = np.zeros(500, np.uint8)
        find_repeats(ids, np.full(30, -1), repeats)
        held = [[one for one in row if one >= 0] for row in ids.tolist()]
        assert repeats.tolist() == [len(set(row)) < len(row) for row in held]


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
