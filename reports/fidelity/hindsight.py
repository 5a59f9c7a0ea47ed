"""What no model of a kind can do better, fitted with hindsight on the very tokens that it is judged by."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

ROUNDING = 1e-9


def best_line_share(x: NDArray[np.float64], y: NDArray[np.float64], within: float) -> float:
    """The largest share of points whose y a straight line of x meets within `within` of y.

    Some best line passes through two ends of the points' intervals y * (1 - within) .. y * (1 + within): all are tried.
    """
    ends_x, ends_y = np.tile(x, 2), np.concatenate([y * (1 - within), y * (1 + within)])
    best = 0
    for end_x, end_y in zip(ends_x, ends_y, strict=True):
        others = ends_x != end_x
        slope = (ends_y[others] - end_y) / (ends_x[others] - end_x)
        line = end_y + slope[:, None] * (x - end_x)
        met = np.abs(line - y) <= within * y * (1 + ROUNDING)
        best = max(best, int(met.sum(axis=1).max(initial=0)))
    return best / len(x)


def best_increasing_share(x: NDArray[np.float64], y: NDArray[np.float64], within: float) -> float:
    """The same for functions that never decrease, free to take another value at every point.

    Points are taken by increasing x; for each height that the function may have reached, the most points met so far.
    """
    order = np.argsort(x, kind="stable")
    low, high = y[order] * (1 - within), y[order] * (1 + within)
    heights = np.unique(low)
    met = np.zeros(len(heights), np.int64)  # function at most heights[i]
    for lowest, highest in zip(low, high, strict=True):
        at, above = np.searchsorted(heights, [lowest, highest * (1 + ROUNDING)])
        taken = met.copy()
        taken[at:above] = met[at:above] + 1
        met = np.maximum.accumulate(taken)
    return int(met.max()) / len(x)
