"""Fitting: the numbers that runs can determine, and the time of each unit of work from measured equations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import Incomplete

# Columns of length 1 that differ by less than this are equivalent: no timing is precise to a thousandth.
INDISTINCT = 1e-3
INVOLVED = 0.05


@dataclass(frozen=True)
class Equation:
    """One measured equation: `seconds` is the sum over `terms` of an unknown's time per unit, times its units.

    relative_sd: standard deviation of the measured time, relative to it.
    of: the part of an anchor that took that long: token, reads, prime or uploads.
    """

    name: str
    seconds: float
    relative_sd: float
    terms: Mapping[str, float]
    of: str = ""


@dataclass(frozen=True, eq=False)
class Fit:
    """The result of a fit: the time per unit of each parameter.

    value: f64 [parameters]. draws: f64 [draws, parameters], fits of simulated observations, which preserve the
    correlation of the parameters. residual: f64 [observations], fitted over measured time, less 1.
    """

    parameters: tuple[str, ...]
    observations: tuple[Equation, ...]
    value: NDArray[np.float64]
    draws: NDArray[np.float64]
    residual: NDArray[np.float64]

    def interval(self, parameter: str) -> tuple[float, float, float]:
        """Lower end of the 90% interval, value and upper end of a parameter's time per unit."""
        column = self.parameters.index(parameter)
        value = float(self.value[column])
        lo, hi = np.quantile(self.draws[:, column], [0.05, 0.95])
        return min(float(lo), value), value, max(float(hi), value)


def fit(observations: Sequence[Equation], parameters: Sequence[str], *, draws: int = 400, seed: int = 1) -> Fit:
    """Weighted non-negative least squares: each equation is weighted by its precision.

    Terms of other parameters are left out, as if they took no time.
    Raises BadInput if the observations do not identify the parameters, naming them and the runs that would.

    Source: Lawson and Hanson 1974, chapter 23 (scipy.optimize.nnls). The intervals are a parametric bootstrap (Efron
    and Tibshirani 1993, section 6.5) with log-normal errors of each observation's `relative_sd`, all of them larger by
    the Birge ratio (Birge 1932, Physical Review 40, 207) if the observations disagree by more than that.
    """
    from scipy.optimize import nnls

    seconds = np.array([one.seconds for one in observations])
    spread = np.array([one.relative_sd for one in observations])
    terms = np.array([[one.terms.get(name, 0.0) for name in parameters] for one in observations])
    rows = terms.reshape(len(observations), len(parameters)) / (seconds * spread)[:, None]
    length = np.sqrt((rows**2).sum(axis=0))
    scaled = rows / np.where(length == 0, 1.0, length)
    _refuse_what_is_not_identified(scaled, parameters)
    value = nnls(scaled, 1 / spread)[0] / length
    residual = terms @ value / seconds - 1
    error = (
        np.random.default_rng(seed).normal(size=(draws, len(observations))) * spread * _birge(residual / spread, value)
    )
    drawn = np.array([nnls(scaled, measured)[0] for measured in np.exp(error) / spread]) / length
    return Fit(tuple(parameters), tuple(observations), value, drawn, residual)


def _birge(residual_sd: NDArray[np.float64], value: NDArray[np.float64]) -> float:
    """The ratio of the residuals, each in its own standard deviations, to their expected size; at least 1."""
    spare = len(residual_sd) - np.count_nonzero(value)
    return max(1.0, float(np.sqrt((residual_sd**2).sum() / spare))) if spare > 0 else 1.0


def _refuse_what_is_not_identified(scaled: NDArray[np.float64], parameters: Sequence[str]) -> None:
    """Raise BadInput if the anchors do not identify the parameters. scaled: columns of length 1."""
    _, singular, directions = np.linalg.svd(scaled)
    present = np.zeros(len(parameters))
    present[: len(singular)] = singular
    null = np.abs(directions[present < INDISTINCT])
    absent = [name for name, column in zip(parameters, scaled.T, strict=True) if not column.any()]
    if absent:
        needs = "; ".join(f"{name} needs {UNKNOWNS[name].needs}" for name in absent)
        raise Incomplete(f"no anchor determines {' or '.join(absent)}: {needs}; add one")
    if len(null):
        mixed = [name for name, share in zip(parameters, null.max(axis=0), strict=True) if share > INVOLVED]
        needs = "; ".join(f"{name} needs {UNKNOWNS[name].needs}" for name in mixed)
        raise Incomplete(f"the anchors cannot separate {' and '.join(mixed)}: {needs}; add such an anchor")


class Unknown(NamedTuple):
    """One number to fit.

    name: its key in a machine's file. The fit finds the time per unit: for `us` the value itself, for a rate in `gb_s`
    the seconds per GB. needs: the runs that determine it, for messages.
    """

    name: str
    needs: str

    @property
    def is_rate(self) -> bool:
        return self.name.endswith("_gb_s")


_ALL = (
    Unknown("layer_us", "an all-hit run (--moe-mode oracle-all-hit) or a stock one"),
    Unknown("read_gb_s", "a streamed run: mode slot-bank, fewer slots than experts"),
    Unknown(
        "first_touch_gb_s",
        "an all-hit run (--moe-mode oracle-all-hit), whose log gives the time that its empty bank took to fill, or "
        "streamed runs with few and with many slots",
    ),
    Unknown("resume_us", "a streamed run and one without misses (--moe-mode oracle-all-hit, or stock)"),
    Unknown("request_us", "runs with two different chunk sizes: another --moe-cache-io-split"),
    Unknown("pinned_gb_s", "a run with uploads: a GPU build"),
    Unknown("weights_gb_s", "runs with two different --moe-topk"),
)
UNKNOWNS = {unknown.name: unknown for unknown in _ALL}
