"""From repeated measurements to a number and its interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from statistics import median

from flashmoe_sim.machines.keys import MEASURED_SPREAD
from flashmoe_sim.machines.machine import Quantity

ROUNDS = 5
CONFIDENCE = 0.9


@dataclass(frozen=True)
class Estimate:
    """The median of some rounds; lo..hi is its 90% interval, in the measured unit."""

    value: float
    lo: float
    hi: float
    rounds: int

    def quantity(self, source: str, condition: str, *, factor: float = 1.0, estimated: bool = False) -> Quantity:
        """The estimate times `factor` as a machine's quantity, with a sensible number of digits."""
        value, lo, hi = (float(f"{number * factor:.4g}") for number in (self.value, self.lo, self.hi))
        return Quantity(value, lo, hi, source, f"{condition}, {self.rounds} rounds", estimated)


def estimate(rounds: Sequence[float]) -> Estimate:
    """The median of the rounds, of which there is at least one.

    Its interval goes from the k-th smallest to the k-th largest, with the largest k for which it contains the true
    median in 90% of cases, whatever the distribution. Fewer than five rounds cannot contain it that often: then the
    interval is their range, but at least the 10% either way of a number without an interval.

    Source: the sign test's interval (Conover, Practical Nonparametric Statistics, 3.2).
    """
    ordered, n = sorted(rounds), len(rounds)
    value = median(ordered)
    k = max((k for k in range(1, n // 2 + 1) if _holds(n, k) >= CONFIDENCE), default=0)
    if k:
        return Estimate(value, ordered[k - 1], ordered[-k], n)
    below, above = MEASURED_SPREAD
    return Estimate(value, min(ordered[0], value * below), max(ordered[-1], value * above), n)


def _holds(n: int, k: int) -> float:
    """The probability that the median lies between the k-th smallest and the k-th largest of n."""
    outside: int = sum(comb(n, i) for i in range(k))
    return 1 - 2 * outside / float(1 << n)
