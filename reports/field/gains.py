"""How likely a cache is faster: from the predicted gain, and from what published pairs of caches like it have shown.

Both runs of a pair are on one machine, so that an error of its speed cancels. What is left is the engine's error, the
machine's (its CPU against its GPU, its hits) and the pair's own. A measured gain is a sum of a level, the predicted
gain and these errors; kinds of caches and engines have levels of their own, drawn towards the common one.
"""

from __future__ import annotations

import math
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import ndtr

from reports.field.pairs import Pair
from reports.field.tune import engine_of

FILE = Path(__file__).with_name("gains.toml")
MOST = 0.5  # of the logarithm of a gain: how much larger it is says little of its sign
# Level, weight of the gain from the parts, and of the gain with the costs of engines: middle and standard deviation.
MIDDLE, SPREAD = np.array([0.0, 0.5, 0.5]), np.array([0.5, 0.5, 0.5])
# Of pairs, kinds, engines and machines before any pair, and of its logarithm: the few engines with pairs cannot say it.
OWN_SD, OWN_FACTOR = 0.2, 0.5
ANY = "all"


class Seen(NamedTuple):
    """A pair as the fit sees it: logarithms of its gain from the parts, with the costs of engines, and as measured.

    measured: NaN if a speed is not known.
    """

    machine: str
    kind: str
    engine: str
    parts: float
    costs: float
    measured: float


@dataclass(frozen=True)
class Gains:
    """What is fitted.

    parts, costs: weights of both predicted gains. sd: of a pair and a machine together. kinds: level of a new engine's
    gains and its standard deviation, by kind of cache; `all` of any other kind. engines: how far an engine's level is
    from its kind's, and the standard deviation of its level.
    """

    parts: float
    costs: float
    sd: float
    kinds: Mapping[str, tuple[float, float]]
    engines: Mapping[str, tuple[float, float]]

    def p(self, pair: Seen) -> float:
        """The probability that the cache is faster; the measured gain is not read."""
        level, sd = self.kinds.get(pair.kind, self.kinds[ANY])
        if pair.engine in self.engines:
            more, sd = self.engines[pair.engine]
            level += more
        middle = level + self.parts * _cut(pair.parts) + self.costs * _cut(pair.costs)
        return float(ndtr(middle / math.hypot(sd, self.sd)))


def seen(tuned: Sequence[Pair], alone: Sequence[Pair]) -> list[Seen]:
    """Pairs as the fit sees them; tuned, alone: the same pairs, with the costs of engines and from the parts."""
    return [
        Seen(
            one.cached.machine_id,
            one.cached.strategy,
            engine_of(one.cached),
            math.log(other.predicted),
            math.log(one.predicted),
            math.log(one.measured) if one.cached.decode_tok_s and one.plain.decode_tok_s else math.nan,
        )
        for one, other in zip(tuned, alone, strict=True)
    ]


def fitted(found: Sequence[Seen], *, leaving: Set[str] = frozenset()) -> Gains:
    """The gains of measured pairs on machines that are not left out; a machine counts as the square root of its pairs.

    The standard deviations are the likeliest ones, and the levels and weights follow from them.
    """
    some = [one for one in found if one.machine not in leaving and not math.isnan(one.measured)]
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
    return Gains(float(middle[1]), float(middle[2]), math.hypot(pair_sd, machine_sd), kinds, engines)


class _Fit:
    """The pairs as columns: level, both gains, and one for each kind, engine and machine."""

    def __init__(self, some: Sequence[Seen]) -> None:
        kinds = ("kind", "engine", "machine")
        groups = [sorted({str(getattr(one, kind)) for one in some}) for kind in kinds]
        self.names = [(ANY, ANY), ("gain", "parts"), ("gain", "costs")]
        self.names += [(kind, name) for kind, names in zip(kinds, groups, strict=True) for name in names]
        self.sizes = [len(names) for names in groups]
        self.columns = np.array([self._row(one) for one in some])
        self.measured = np.array([_cut(one.measured) for one in some])
        pairs = Counter(one.machine for one in some)
        self.weight = np.array([pairs[one.machine] ** -0.5 for one in some])

    def _row(self, one: Seen) -> list[float]:
        own = {("kind", one.kind), ("engine", one.engine), ("machine", one.machine)}
        return [1.0, _cut(one.parts), _cut(one.costs), *(float(name in own) for name in self.names[3:])]

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
    """The probability of each pair, fitted on the pairs of other machines."""
    others = {machine: fitted(found, leaving={machine}) for machine in sorted({one.machine for one in found})}
    return [others[one.machine].p(one) for one in found]


def save(found: Gains, path: Path = FILE) -> None:
    """Write what is fitted as a file that people can read."""
    lines = ["# Made by `python -m reports.field`: how likely a cache is faster; see the page."]
    lines += [f"{name} = {getattr(found, name):.4f}" for name in ("parts", "costs", "sd")]
    for table in ("kinds", "engines"):
        lines += ["", f"[{table}]"]
        lines += [f'"{name}" = [{level:.4f}, {sd:.4f}]' for name, (level, sd) in getattr(found, table).items()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def load(path: Path = FILE) -> Gains:
    """What the file has."""
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    kinds, engines = (
        {name: (level, sd) for name, (level, sd) in document.pop(table).items()} for table in ("kinds", "engines")
    )
    return Gains(**document, kinds=kinds, engines=engines)


def _cut(log_gain: float) -> float:
    """The logarithm of a gain, never more than MOST."""
    return MOST * math.tanh(log_gain / MOST)
