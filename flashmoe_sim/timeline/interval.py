"""The uncertainty of a predicted speed: the machine's intervals, the trace's chance, and how much two runs differ."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.machines.anchors import SPEED_SD
from flashmoe_sim.machines.machine import Machine

BLOCK_STEPS = 16
RESAMPLES = 400
SD_90 = 1.645  # standard deviations from the centre to either end of a 90 % interval
SIZES = ("memory.ram_gib", "memory.reserve_gib", "gpu.memory_gib")  # settings of a machine, not measurements


def speed_interval(
    tok_s: float,
    speed_on: Callable[[Machine], float],
    machine: Machine,
    step_s: NDArray[np.float64],
    *,
    seed: int = 1,
) -> tuple[float, float]:
    """The 90 % interval of a run's speed, in tokens a second.

    speed_on: the speed predicted on a machine, in any unit; called with each quantity at the ends of its interval, one
        at a time.
    step_s: f64 [steps], seconds of the decoded steps, resampled in blocks of 16 steps, to preserve the correlation of
        neighbouring steps. seed: of the resampling.
    A run differs from its prediction like the runs of a fit, by SPEED_SD. Each cause shifts the logarithm of the speed,
    by separate amounts up and down; since the causes are independent, the squares add up.

    Source: one-at-a-time propagation of uncertainty (JCGM 100:2008, 5.1.2); moving-block bootstrap (Kuensch 1989,
    Annals of Statistics 17, 3).
    """
    below, above = _trace_luck(_resampled(step_s, seed=seed))
    run = (SD_90 * SPEED_SD) ** 2
    return _around(tok_s, speed_on, machine, run + below * below, run + above * above)


def gain_interval(
    ratio: float,
    ratio_on: Callable[[Machine], float],
    machine: Machine,
    before_s: NDArray[np.float64],
    after_s: NDArray[np.float64],
) -> tuple[float, float]:
    """The 90 % interval of the ratio of two speeds on one machine, over the same steps.

    The errors of the two are correlated: a machine's quantity changes both speeds, and the same steps are resampled.
    The difference between two runs of one setup is not included.
    ratio_on: like speed_on. before_s, after_s: f64 [steps], seconds of each one's decoded steps.
    """
    below, above = _trace_luck(_resampled(after_s, seed=1) / _resampled(before_s, seed=1))
    return _around(ratio, ratio_on, machine, below * below, above * above)


def _around(
    value: float, value_on: Callable[[Machine], float], machine: Machine, below: float, above: float
) -> tuple[float, float]:
    """The interval of a value from these squared deviations of its logarithm and those of the machine's quantities."""
    here = math.log(value_on(machine))
    squares = [below, above]
    for path, quantity in machine.quantities():
        if path in SIZES or quantity.lo == quantity.hi:
            continue
        moves = [math.log(value_on(machine.varied(path, end))) - here for end in (quantity.lo, quantity.hi)]
        squares[0] += min(*moves, 0.0) ** 2
        squares[1] += max(*moves, 0.0) ** 2
    return value * math.exp(-math.sqrt(squares[0])), value * math.exp(math.sqrt(squares[1]))


def _trace_luck(times: NDArray[np.float64]) -> tuple[float, float]:
    """How far the logarithm of a speed deviates, down and up, in 90 % of the resamplings of its times."""
    slow, fast = np.quantile(times[1:], [0.95, 0.05])
    return float(np.log(times[0] / slow)), float(np.log(times[0] / fast))


def _resampled(step_s: NDArray[np.float64], *, seed: int) -> NDArray[np.float64]:
    """The mean step, and the mean of each resampling: f64 [1 + RESAMPLES]; the same steps for the same seed."""
    steps = len(step_s)
    block = min(BLOCK_STEPS, steps)
    if steps < 2 or not step_s.any():
        return np.ones(1 + RESAMPLES)
    starts = np.random.default_rng(seed).integers(0, steps - block + 1, (RESAMPLES, -(-steps // block)))
    sums = np.concatenate([[0.0], np.cumsum(step_s)])
    means = (sums[starts + block] - sums[starts]).sum(axis=1) / (block * starts.shape[1])
    return np.concatenate([[step_s.mean()], means])
