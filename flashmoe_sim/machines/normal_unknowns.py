"""What measurements teach about unknowns, if the logarithm of each speed is a sum of normal ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

LEARNT = "learnt from"  # how the note on a speed that taught something begins
Loads = Mapping[str, float]  # how much one standard deviation of each unknown adds to a logarithm


@dataclass(frozen=True, eq=False)
class Learnt:
    """Unknowns after measurements; before, and if not named here, each has the mean 0, the variance 1 and no relation.

    names: of the unknowns. mean: f64 [unknowns]. covariance: f64 [unknowns, unknowns].
    notes: for users, what each measurement was, or why it was not used.
    """

    names: tuple[str, ...]
    mean: NDArray[np.float64]
    covariance: NDArray[np.float64]
    notes: tuple[str, ...] = ()

    def of(self, loads: Loads) -> tuple[float, float]:
        """The mean and the variance of a sum of unknowns."""
        here = np.array([loads.get(name, 0.0) for name in self.names])
        others = sum(load * load for name, load in loads.items() if name not in self.place)
        return float(here @ self.mean), float(here @ self.covariance @ here) + others

    @cached_property
    def place(self) -> dict[str, int]:
        """Where each unknown stands in the arrays."""
        return {name: place for place, name in enumerate(self.names)}


NOTHING = Learnt((), np.zeros(0), np.zeros((0, 0)))


def learn(
    loads: Sequence[Loads], off: Sequence[float], noise_sd: Sequence[float], *, before: Learnt = NOTHING
) -> Learnt:
    """What the deviations of measured logarithms from their predictions teach.

    loads, off, noise_sd: of each measurement, with the standard deviation of what no unknown explains. off: from the
    prediction with every unknown at 0. before: what was known.
    Source: conditioning of a joint normal distribution (Rasmussen and Williams 2006, appendix A.2).
    """
    new = {name for each in loads for name in each} - set(before.names)
    names, known = (*before.names, *sorted(new)), len(before.names)
    mean, covariance = np.zeros(len(names)), np.eye(len(names))
    mean[:known], covariance[:known, :known] = before.mean, before.covariance
    if not loads:
        return Learnt(names, mean, covariance)
    matrix = np.array([[each.get(name, 0.0) for name in names] for each in loads])
    seen = matrix @ covariance @ matrix.T + np.diag(np.square(noise_sd))
    gain = np.linalg.solve(seen, matrix @ covariance).T
    return Learnt(names, mean + gain @ (np.asarray(off) - matrix @ mean), covariance - gain @ matrix @ covariance)
