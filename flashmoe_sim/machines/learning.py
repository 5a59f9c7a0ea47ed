"""A machine after speeds were measured on it: its numbers and the errors of engines, learnt together."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from flashmoe_sim.machines.belief import SD_90, at
from flashmoe_sim.machines.machine import SIZES, Machine, Quantity
from flashmoe_sim.machines.normal_unknowns import NOTHING, Learnt, Loads, learn

ROUNDS = 4  # of a prediction that is not linear in its unknowns, each at what the last one taught
STEP = SD_90  # standard deviations to either side, over which a slope is taken
LOPSIDED = 4  # power of the standard deviation with which an interval keeps its sides
KNOWN = 0.6  # of the standard deviation of before: a guess that a measurement narrowed to this is none any more


@dataclass(frozen=True, eq=False)
class Observation:
    """A measured speed.

    tok_s: tokens a second. speed_on: what is predicted on a machine, in tokens a second, without an engine's error.
    loads: of that error, see `belief.error_loads`. sd: of the logarithm, of all that no unknown explains.
    """

    tok_s: float
    speed_on: Callable[[Machine], float]
    loads: Loads
    sd: float


class Learner:
    """A machine, and what one standard deviation of each of its numbers does to each measured speed."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._at_start: dict[Observation, _Slopes] = {}

    def after(self, seen: Sequence[Observation], notes: Sequence[str] = (), *, roughly: bool = False) -> Machine:
        """The machine after these measurements, with notes on them for users.

        roughly: without numbers that do nothing to a speed where the machine is now, which takes a third of the time.
        """
        found = _absorbed(self.machine, self._posterior(seen, roughly=roughly))
        before = () if self.machine.learnt is None else self.machine.learnt.notes
        assert found.learnt is not None
        return replace(found, learnt=replace(found.learnt, notes=(*before, *notes)))

    def _posterior(self, seen: Sequence[Observation], *, roughly: bool) -> Learnt:
        """What the measurements teach, by Gauss-Newton steps to the most likely unknowns.

        Source: iterated extended Kalman update (Bell and Cathey 1993, IEEE Transactions on Automatic Control 38, 2).
        """
        machine, before = self.machine, self.machine.learnt or NOTHING
        start = dict.fromkeys(_paths(machine), 0.0)
        learnt, here = before, start
        for _ in range(ROUNDS if seen else 0):
            loads, off = [], []
            for one in seen:
                if one not in self._at_start:
                    self._at_start[one] = _slopes(machine, one, start, start)
                at_start = self._at_start[one]
                paths = at_start.slopes if roughly else start
                slopes, log = at_start if here is start else _slopes(machine, one, here, paths)
                at_zero = log - sum(slope * here.get(path, 0.0) for path, slope in slopes.items())
                loads.append({**slopes, **one.loads})
                off.append(math.log(one.tok_s) - at_zero)
            learnt = learn(loads, off, [one.sd for one in seen], before=before)
            here = dict(zip(learnt.names, learnt.mean.tolist(), strict=True))
        return learnt


class _Slopes(NamedTuple):
    """What one standard deviation of each number of a machine adds to the logarithm of a speed; and that logarithm."""

    slopes: dict[str, float]
    log: float


def _slopes(machine: Machine, one: Observation, here: Mapping[str, float], paths: Iterable[str]) -> _Slopes:
    slopes = {}
    for path in paths:
        ends = (_moved(machine, {**here, path: here.get(path, 0.0) + step}) for step in (-STEP, STEP))
        slow, fast = (one.speed_on(end) for end in ends)
        if slow != fast:
            slopes[path] = (math.log(fast) - math.log(slow)) / (2 * STEP)
    return _Slopes(slopes, math.log(one.speed_on(_moved(machine, here))))


def _paths(machine: Machine) -> dict[str, Quantity]:
    return {path: q for path, q in machine.quantities() if path not in SIZES and q.lo != q.hi}


def _moved(machine: Machine, deviations: Mapping[str, float]) -> Machine:
    """The machine with numbers so many standard deviations from their values; other unknowns are left out."""
    known = _paths(machine)
    return machine.with_values({path: at(known[path], by) for path, by in deviations.items() if path in known and by})


def _absorbed(machine: Machine, learnt: Learnt) -> Machine:
    """The machine with its numbers where they were learnt to be, in narrower intervals."""
    mean, sd = learnt.mean.copy(), np.sqrt(np.diag(learnt.covariance))
    found = machine
    for path, quantity in _paths(machine).items():
        if (place := learnt.place.get(path)) is None:
            continue
        narrow = _narrowed(quantity, float(mean[place]), float(sd[place]))
        section, _, key = path.partition(".")
        found = replace(found, **{section: replace(getattr(found, section), **{key: narrow})})
        mean[place] = 0.0
    scale = np.array([sd[place] if name in _paths(machine) else 1.0 for place, name in enumerate(learnt.names)])
    return replace(found, learnt=Learnt(learnt.names, mean, learnt.covariance / np.outer(scale, scale)))


def _narrowed(quantity: Quantity, mean: float, sd: float) -> Quantity:
    """A quantity so many standard deviations from its value, with this standard deviation.

    A lopsided interval becomes even as it narrows: what is known by then is a sum, in which no side is special.
    """
    least, value, most = (at(quantity, mean + sign * SD_90 * sd) for sign in (-1, 0, 1))
    guessed = quantity.guessed and sd > KNOWN
    if least > 0:
        slow, fast = (at(quantity, mean + step) for step in (-STEP, STEP))
        even, lopsided = SD_90 * sd * math.log(fast / slow) / (2 * STEP), sd**LOPSIDED
        least = value * math.exp(lopsided * math.log(least / value) - (1 - lopsided) * even)
        most = value * math.exp(lopsided * math.log(most / value) + (1 - lopsided) * even)
    return replace(quantity, value=value, lo=least, hi=most, guessed=guessed)
