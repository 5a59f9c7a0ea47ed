"""The uncertainty of a predicted speed: the machine's intervals, the trace's chance, and how much two runs differ."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.machines.anchors import SPEED_SD
from flashmoe_sim.machines.belief import (
    ANY_ENGINE,
    DRAWS,
    Draws,
    Whose,
    drawn,
    error_draws,
    moved,
    normals,
    unknown,
)
from flashmoe_sim.machines.machine import SIZES, Machine

BLOCK_STEPS = 16
RESAMPLES = 400
NO_TIME = 10.0  # times as fast: the end of an interval at which nothing would take time, so that no speed follows
CHECKED = 8  # draws at which the surface is compared with the model itself


def speed_draws(
    speed_on: Callable[[Machine], float],
    machine: Machine,
    step_s: NDArray[np.float64],
    *,
    whose: Whose | None = ANY_ENGINE,
) -> Draws:
    """Draws of the logarithm of a run's speed over its prediction: f64 [512].

    speed_on: the speed predicted on a machine, in any unit.
    step_s: f64 [steps], seconds of the decoded steps, resampled in blocks of 16 steps, to preserve the correlation of
        neighbouring steps.
    whose: the engine, whose error counts; None: no engine's.
    A run differs from its prediction by the machine's numbers, by the error of its engine, by the trace's chance, and,
    like the runs of a fit, by SPEED_SD.
    """
    run = SPEED_SD * normals(f"run {'' if whose is None else whose.setting}")
    return _machine_draws(speed_on, machine) + error_draws(machine, whose) + _luck(_resampled(step_s)) + run


def _machine_draws(value_on: Callable[[Machine], float], machine: Machine) -> Draws:
    """Draws of the logarithm of what a machine makes of a value.

    The value is computed with each quantity at the ends of its interval, one at a time, and in CHECKED draws of all
    together; how far the sum of the single moves is from these is added as an error. Where nothing would take time, the
    value is NO_TIME times that of the machine.
    """
    vary = {path: q for path, q in machine.quantities() if path not in SIZES and q.lo != q.hi}
    found = np.zeros(DRAWS)
    if not vary:
        return found
    here = math.log(value_on(machine))

    def off_on(other: Machine) -> float:
        try:
            return math.log(value_on(other)) - here
        except ZeroDivisionError:
            return math.log(NO_TIME)

    for path, quantity in vary.items():
        at_ends = (off_on(machine.varied(path, end)) for end in (quantity.lo, quantity.hi))
        found += moved(unknown(machine, path), *at_ends)
    off = [off_on(drawn(machine, vary, draw)) - found[draw] for draw in range(0, DRAWS, DRAWS // CHECKED)]
    return found + math.sqrt(sum(one * one for one in off) / CHECKED) * normals("surface")


def _luck(times: NDArray[np.float64]) -> Draws:
    """Draws of the logarithm of a speed from the resamplings of its times."""
    slow, fast = np.quantile(times[1:], [0.95, 0.05])
    return moved(normals("trace"), float(np.log(times[0] / slow)), float(np.log(times[0] / fast)))


def _resampled(step_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean step, and the mean of each resampling: f64 [1 + RESAMPLES].

    Source: moving-block bootstrap (Kuensch 1989, Annals of Statistics 17, 3).
    """
    steps = len(step_s)
    block = min(BLOCK_STEPS, steps)
    if steps < 2 or not step_s.any():
        return np.ones(1 + RESAMPLES)
    starts = np.random.default_rng(1).integers(0, steps - block + 1, (RESAMPLES, -(-steps // block)))
    sums = np.concatenate([[0.0], np.cumsum(step_s)])
    means = (sums[starts + block] - sums[starts]).sum(axis=1) / (block * starts.shape[1])
    return np.concatenate([[step_s.mean()], means])
