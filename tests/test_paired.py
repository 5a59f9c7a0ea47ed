"""How two replays differ: by hand, how often its intervals hold on steps with a known truth, and corrected chances."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.signal import lfilter

from flashmoe_sim.paired import BLOCKS, PairedEstimate, blocks_of, difference, holm, log_ratio, mean_of

RUNS = 600


def correlated(rng: np.random.Generator, steps: int, rho: float) -> NDArray[np.float64]:
    """Numbers with mean 0, each `rho` of the one before and a part of its own."""
    return np.asarray(lfilter([1.0], [1.0, -rho], rng.standard_normal(steps + 200))[200:])


def test_difference_by_hand() -> None:
    """Two blocks of 10 requests: 6 and 4 hits against 4 and 4, which is 2 of 20; each is 0.05 from 0.1."""
    own, other, requests = np.array([3, 3, 2, 2]), np.array([2, 2, 2, 2]), np.full(4, 5)
    found = difference(own, other, requests, np.array([0, 0, 1, 1]))
    assert found.value == pytest.approx(0.1)
    assert found.error == pytest.approx(math.sqrt(2 * (0.05**2 + 0.05**2)))
    assert found.freedom == 1


def test_log_ratio_by_hand() -> None:
    """Seconds 1 and 3 against 4 and 4: twice as fast; a quarter and three quarters against a half each."""
    found = log_ratio(np.array([1.0, 3.0]), np.array([4.0, 4.0]), np.array([0, 1]))
    assert found.value == pytest.approx(math.log(2))
    assert found.error == pytest.approx(math.sqrt(2 * (0.25**2 + 0.25**2)))


def test_no_difference_is_certain() -> None:
    same = np.arange(1, 101)
    found = difference(same, same, same, blocks_of(100))
    assert found.interval(0.95) == (0, 0)
    assert found.p == 1
    more = difference(2 * same, same, same, blocks_of(100))
    assert more.interval(0.95) == pytest.approx((1, 1))
    assert more.p == 0


@pytest.mark.parametrize(("steps", "rho"), [(500, 0.0), (500, 0.6), (1000, 0.3), (1000, 0.8), (3000, 0.8)])
def test_intervals_hold_as_often_as_they_say(steps: int, rho: float) -> None:
    """The true difference is 0.25 of a request."""
    rng, requests, block = np.random.default_rng(steps), np.ones(steps), blocks_of(steps)
    held, drawn = 0, 0
    for _ in range(RUNS):
        more = 0.25 + correlated(rng, steps, rho)
        lo, hi = difference(more, np.zeros(steps), requests, block).interval(0.95)
        held += lo <= 0.25 <= hi
        lo, hi = _drawn_again(rng, more)
        drawn += lo <= 0.25 <= hi
    assert 0.93 <= held / RUNS <= 0.97
    assert drawn < held


def _drawn_again(rng: np.random.Generator, steps: NDArray[np.float64]) -> tuple[float, float]:
    """The block bootstrap, with blocks of three cube roots of the steps."""
    block = np.arange(len(steps)) // round(3 * len(steps) ** (1 / 3))
    sums, counts = np.bincount(block, steps), np.bincount(block)
    drawn = rng.integers(len(sums), size=(200, len(sums)))
    lo, hi = np.quantile(sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1), (0.025, 0.975))
    return float(lo), float(hi)


def test_chances_are_even_if_there_is_no_difference() -> None:
    rng, steps = np.random.default_rng(3), 1000
    ps = [
        difference(correlated(rng, steps, 0.5), np.zeros(steps), np.ones(steps), blocks_of(steps)).p
        for _ in range(RUNS)
    ]
    for share in (0.05, 0.25, 0.5):
        assert np.mean(np.array(ps) < share) == pytest.approx(share, abs=0.04)


def test_blocks_are_requests_if_there_are_enough() -> None:
    requests = np.repeat(np.arange(BLOCKS, dtype=np.int32) * 7, 3)
    assert blocks_of(len(requests), requests).tolist() == np.repeat(np.arange(BLOCKS), 3).tolist()
    few = np.repeat(np.arange(BLOCKS - 1, dtype=np.int32), 10)
    assert blocks_of(len(few), few).tolist() == blocks_of(len(few)).tolist()
    assert np.bincount(blocks_of(95)).tolist() == [10, 9] * 5
    assert blocks_of(3).tolist() == [0, 1, 2]


def test_mean_of_traces() -> None:
    """Errors of 3 and 4 add up to 5, of which half remains; equal errors keep all degrees of freedom."""
    found = mean_of([PairedEstimate(1.0, 3.0, 9.0), PairedEstimate(2.0, 4.0, 9.0)])
    assert (found.value, found.error) == (1.5, 2.5)
    assert found.freedom == pytest.approx(25**2 / (81 / 9 + 256 / 9))
    assert mean_of([PairedEstimate(1.0, 2.0, 9.0)] * 2).freedom == pytest.approx(18)


def test_holm_by_hand() -> None:
    """The least is multiplied by how many there are, the next by one less, and none falls below one before it."""
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    found = holm([0.02, math.nan])
    assert found[0] == 0.02
    assert math.isnan(found[1])
    assert holm([]) == []
