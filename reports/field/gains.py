"""Fits how likely a cache is faster, on published pairs of speeds with and without one: `flashmoe_sim.tune.pays`.

The predicted gain is that of the commands' own answers.
Both runs of a pair are on one machine, so that an error of its speed cancels. What is left is the engine's error, the
machine's (its CPU against its GPU, its hits) and the pair's own. A measured gain is a sum of a level, the predicted
gain with a weight, and these errors; kinds of caches and engines have levels of their own, drawn towards the common
one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.optimize import minimize

from flashmoe_sim.field.engines import engine_of
from flashmoe_sim.field.rows import FieldRow, source_of
from flashmoe_sim.tune import pays
from flashmoe_sim.tune.pays import ANY, Gains, cut, despite
from reports.field.answers import Answer
from reports.field.pairs import Pair, Speed, pairs
from reports.field.residuals import known, on_parts

FILE = Path(pays.__file__).with_name(pays.FILE)
MIDDLE, SPREAD = np.array([0.0, 1.0]), np.array([0.5, 0.5])  # of the level and the gain's weight
# Of pairs, kinds, engines and machines before any pair, and of its logarithm: the few engines with pairs cannot say it.
OWN_SD, OWN_FACTOR = 0.2, 0.5
DIGITS = 6


class Seen(NamedTuple):
    """A pair as the fit sees it, with the logarithms of its predicted and its measured gain.

    measured: NaN if a speed is not known. system: None of an engine without one.
    """

    machine: str
    kind: str
    engine: str
    predicted: float
    measured: float
    source: str = ""
    system: str | None = None


def seen(found: Sequence[Pair]) -> list[Seen]:
    """Pairs as the fit sees them: a plain engine has no cache, so that it predicts no gain."""
    return [
        Seen(
            one.cached.machine_id,
            one.cached.strategy,
            engine_of(one.cached),
            0.0 if one.with_cache.system is None else math.log(one.predicted),
            math.log(one.measured) if one.cached.decode_tok_s and one.plain.decode_tok_s else math.nan,
            source_of(one.cached),
            one.with_cache.system,
        )
        for one in found
    ]


def p_of(found: Gains, pair: Seen) -> float:
    """The probability that a pair's cache is faster; the measured gain is not read."""
    return found.of_engine(pair.kind, pair.engine, pair.predicted)


def fitted(found: Sequence[Seen], *, leaving: str | None = None) -> Gains:
    """The gains of measured pairs, but those of the source that is left out; a machine counts as the square root of its
    pairs.

    The standard deviations are the likeliest ones, and the levels and the weight follow from them. `right` is 0: see
    `with_score`.
    """
    some = [one for one in found if one.source != leaving and not math.isnan(one.measured)]
    fit = _Fit(some)
    start = np.full(4, math.log(OWN_SD))
    log_sds = minimize(fit.misfit, start, method="L-BFGS-B").x
    middle, covariance = fit.coefficients(log_sds)
    pair_sd, kind_sd, engine_sd, machine_sd = np.exp(log_sds).tolist()

    def level(*groups: tuple[str, str], more_sd: float = 0.0) -> tuple[float, float]:
        row = np.array([float(name in ((ANY, ANY), *groups)) for name in fit.names])
        return float(row @ middle), math.sqrt(float(row @ covariance @ row) + more_sd**2)

    kinds = {ANY: level(more_sd=math.hypot(kind_sd, engine_sd))}
    kinds |= {kind: level(("kind", kind), more_sd=engine_sd) for kind in sorted({one.kind for one in some})}
    engines = {}
    for kind, engine in sorted({(one.kind, one.engine) for one in some}):
        own, sd = level(("kind", kind), ("engine", engine))
        engines[engine] = own - kinds[kind][0], sd
    systems = {}
    for system, kind, engine in sorted({(one.system, one.kind, one.engine) for one in some if one.system is not None}):
        more, sd = engines[engine]
        systems[system] = kinds[kind][0] + more, sd
    machines = len({one.machine for one in some})
    return Gains(
        float(middle[1]), math.hypot(pair_sd, machine_sd), kinds, engines, systems, len(some), machines, right=0.0
    )


def with_score(found: Sequence[Seen]) -> Gains:
    """The gains of all pairs, with the share of pairs whose faster row is named if their source is left out."""
    named = [(p > 0.5) == (one.measured > 0) for one, p in zip(found, left_out(found), strict=True)]
    return replace(fitted(found), right=sum(named) / len(named))


class _Fit:
    """The pairs as columns: level, gain, and one for each kind, engine and machine."""

    def __init__(self, some: Sequence[Seen]) -> None:
        kinds = ("kind", "engine", "machine")
        groups = [sorted({str(getattr(one, kind)) for one in some}) for kind in kinds]
        self.names = [(ANY, ANY), ("gain", "predicted")]
        self.names += [(kind, name) for kind, names in zip(kinds, groups, strict=True) for name in names]
        self.sizes = [len(names) for names in groups]
        self.columns = np.array([self._row(one) for one in some])
        self.measured = np.array([cut(one.measured) for one in some])
        pairs = Counter(one.machine for one in some)
        self.weight = np.array([pairs[one.machine] ** -0.5 for one in some])

    def _row(self, one: Seen) -> list[float]:
        own = {("kind", one.kind), ("engine", one.engine), ("machine", one.machine)}
        return [1.0, float(cut(one.predicted)), *(float(name in own) for name in self.names[2:])]

    def misfit(self, log_sds: NDArray[np.float64]) -> float:
        """Minus the logarithm of the likelihood of the standard deviations of pairs, kinds, engines and machines."""
        rest, covariance = self._measured(log_sds)
        root = np.linalg.cholesky(covariance)
        scaled = np.linalg.solve(root, rest)
        counted = float((self.weight - 1).sum() * log_sds[0])
        before = float((((log_sds - math.log(OWN_SD)) / OWN_FACTOR) ** 2).sum()) / 2
        return float(np.log(np.diag(root)).sum()) + float(scaled @ scaled) / 2 + counted + before

    def coefficients(self, log_sds: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Every column's coefficient and their covariance."""
        middle, spread = self._before(log_sds)
        rest, covariance = self._measured(log_sds)
        gain = np.linalg.solve(covariance, self.columns * spread**2).T
        return middle + gain @ rest, np.diag(spread**2) - gain @ (self.columns * spread**2)

    def _before(self, log_sds: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        own = np.repeat(np.exp(log_sds[1:]), self.sizes)
        return np.concatenate([MIDDLE, np.zeros(len(own))]), np.concatenate([SPREAD, own])

    def _measured(self, log_sds: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """How far the measured gains are from what is expected before any pair, and their covariance."""
        middle, spread = self._before(log_sds)
        scaled = self.columns * spread
        pairs = np.diag(np.exp(2 * log_sds[0]) / self.weight)
        return self.measured - self.columns @ middle, pairs + scaled @ scaled.T


def left_out(found: Sequence[Seen]) -> list[float]:
    """The probability of each pair, fitted on the pairs of other sources."""
    others = {source: fitted(found, leaving=source) for source in sorted({one.source for one in found})}
    return [p_of(others[one.source], one) for one in found]


def save(found: Gains, path: Path = FILE) -> None:
    """Write what is fitted as a file that people can read."""
    lines = ["# Made by `python -m reports.field`: how likely a cache is faster; see flashmoe_sim/tune/pays.py."]
    lines += [f"{name} = {getattr(found, name):.4f}" for name in ("weight", "sd", "right")]
    lines += [f"{name} = {getattr(found, name)}" for name in ("pairs", "machines")]
    for table in ("kinds", "engines", "systems"):
        lines += ["", f"[{table}]"]
        lines += [f'"{name}" = [{level:.4f}, {sd:.4f}]' for name, (level, sd) in getattr(found, table).items()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def pairs_of(rows: Sequence[FieldRow], answered: pl.DataFrame) -> list[Pair]:
    """The pairs of rows that systems answered, on the machine of their parts. answered: lines of residuals.csv."""
    lines = known(on_parts(answered)).select("id", *Speed._fields).iter_rows()
    return pairs(rows, {row_id: Speed(*speed) for row_id, *speed in lines})


@dataclass(frozen=True)
class Chance:
    """A pair of rows, and the probability that the one with the cache is faster."""

    pair: Pair
    p: float

    @property
    def despite(self) -> str:
        """Why the probability and the predicted gain point different ways, or empty."""
        return despite(self.p, self.pair.predicted)

    def as_json(self) -> dict[str, Any]:
        """What `--pairs --json` prints of a pair."""
        return {"cache": self.pair.cached.id, "plain": self.pair.plain.id, "p": self.p, "despite": self.despite or None}

    def as_text(self) -> str:
        """What `--pairs` prints of a pair."""
        return (
            f"{self.pair.cached.id}: faster than {self.pair.plain.id} with a probability of {self.p:.0%}; predicted "
            f"{self.pair.predicted:.3g} times as fast{f': {self.despite}' if self.despite else ''}"
        )


def chances(rows: Sequence[FieldRow], found: Sequence[Answer], gains: Gains) -> list[Chance]:
    """Every pair of answered rows with and without a cache; no measured speed is used."""
    speeds = {
        one.id: Speed(one.tok_s, one.lo, one.hi, one.system)
        for one in found
        if one.tok_s is not None and one.lo is not None and one.hi is not None
    }
    of = pairs(rows, speeds)
    return [Chance(pair, round(p_of(gains, one), DIGITS)) for pair, one in zip(of, seen(of), strict=True)]
