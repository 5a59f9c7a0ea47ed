"""How two replays of the same steps differ, with an interval: blocks of steps, each with the numbers of both.

What a bank holds depends on the steps before, so single steps are not independent, but long blocks nearly are. A
ratio's error follows from how far each block is from it, with Student's t for few blocks.

Source: A. M. Law, Simulation Modeling and Analysis, section 9.5.3 (batch means). On correlated steps it holds as often
as it says, where drawing blocks again (the block bootstrap) holds less often: `tests/test_paired.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

BLOCKS = 10


class PairedEstimate(NamedTuple):
    """A number, its standard error, and the degrees of freedom of the error; NaN if there are too few blocks."""

    value: float
    error: float
    freedom: float

    def interval(self, confidence: float) -> tuple[float, float]:
        """The ends of the interval; both are the value if no block differs from it."""
        from scipy.stats import t

        half = self.error and self.error * float(t.ppf((1 + confidence) / 2, self.freedom))
        return self.value - half, self.value + half

    @property
    def p(self) -> float:
        """The probability of a number at least as far from 0 if the true one is 0."""
        from scipy.stats import t

        if not self.error:
            return float(self.value == 0)
        return 2 * float(t.sf(abs(self.value) / self.error, self.freedom))


def blocks_of(steps: int, request: NDArray[np.int32] | None = None) -> NDArray[np.int64]:
    """The block of each step, i64 [steps]: its request if there are enough of them, else one of equal stretches.

    request: the number of each step's request, if they are known.
    """
    if request is not None:
        block = np.unique(request, return_inverse=True)[1].astype(np.int64)
        if block.max(initial=-1) + 1 >= BLOCKS:
            return block
    count = min(BLOCKS, steps)
    return np.arange(steps, dtype=np.int64) * count // max(steps, 1)


def difference(own: NDArray[Any], other: NDArray[Any], whole: NDArray[Any], block: NDArray[np.int64]) -> PairedEstimate:
    """The difference of two shares, such as of hits in requests.

    own, other, whole: numbers of each step; `whole` is what both are a share of. block: from `blocks_of`.
    """
    more, all_ = np.bincount(block, own - other), np.bincount(block, whole)
    total = float(all_.sum())
    if not total:
        return PairedEstimate(math.nan, math.nan, math.nan)
    value = float(more.sum()) / total
    return PairedEstimate(value, *_spread((more - value * all_) / total))


def log_ratio(own: NDArray[Any], other: NDArray[Any], block: NDArray[np.int64]) -> PairedEstimate:
    """The logarithm of the sum of `other` over the sum of `own`; of seconds, how many times as fast `own` is."""
    ours, theirs = np.bincount(block, own), np.bincount(block, other)
    if not ours.sum() or not theirs.sum():
        return PairedEstimate(math.nan, math.nan, math.nan)
    value = math.log(theirs.sum() / ours.sum())
    return PairedEstimate(value, *_spread(theirs / theirs.sum() - ours / ours.sum()))


def _spread(rest: NDArray[np.float64]) -> tuple[float, float]:
    """The standard error of a sum of blocks, and its degrees of freedom. rest: how far each is from its share."""
    count = len(rest)
    if count < 2:
        return math.nan, math.nan
    return math.sqrt(count / (count - 1) * float(rest @ rest)), count - 1.0


def mean_of(found: Sequence[PairedEstimate]) -> PairedEstimate:
    """The mean of independent estimates, with Satterthwaite's degrees of freedom."""
    squares = [one.error**2 for one in found]
    freedom = sum(one.freedom for one in found)
    if sum(squares):
        freedom = sum(squares) ** 2 / sum(square**2 / one.freedom for square, one in zip(squares, found, strict=True))
    return PairedEstimate(sum(one.value for one in found) / len(found), math.sqrt(sum(squares)) / len(found), freedom)


def holm(ps: Sequence[float]) -> list[float]:
    """Probabilities corrected for how many were looked at.

    Source: S. Holm, A simple sequentially rejective multiple test procedure (1979).
    """
    corrected, largest = [math.nan] * len(ps), 0.0
    known = [place for place in np.argsort(ps).tolist() if not math.isnan(ps[place])]
    for rank, place in enumerate(known):
        largest = max(largest, min(1.0, (len(known) - rank) * ps[place]))
        corrected[place] = largest
    return corrected
