"""Whether an expert cache is faster on a machine than none: how surely, from what size on, and why."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from statistics import NormalDist
from typing import Any

import numpy as np

from flashmoe_sim.machines.belief import Draws
from flashmoe_sim.systems.base import Case, System
from flashmoe_sim.systems.compare import NEAR, Compared, at_setting
from flashmoe_sim.tune.objective import Objective
from flashmoe_sim.tune.proof import common_first, runs_there, wins
from flashmoe_sim.tune.search import SearchResult

FILE = "gains.toml"
NORMAL = NormalDist()
MOST = 0.5  # of the logarithm of a gain: how much larger it is says little of its sign
ANY = "all"  # kind of any other cache
FINE_RATE = 0.005
NEVER = 0.0005  # of requests: such a hit rate is printed as 0.0%
EVEN = 0.5
LIKELY_KEYS = ("p_faster_than_plain", "draws_faster_than_plain", "no_difference", "despite")  # in every document


@dataclass(frozen=True)
class Gains:
    """What caches gained in published pairs of speeds with and without one, fitted by `python -m reports.field`.

    weight: of the logarithm of a predicted gain. sd: of a pair and a machine together. kinds: the level of a new
    engine's gains and its standard deviation, by kind of cache; ANY for any other kind. engines: how far an engine's
    level is from its kind's, and the standard deviation of its level. systems: level and standard deviation of the
    systems whose engine has pairs.
    pairs, machines: how many were fitted. right: the share named rightly of pairs that were not fitted, nor any by who
    measured them.
    """

    weight: float
    sd: float
    kinds: Mapping[str, tuple[float, float]]
    engines: Mapping[str, tuple[float, float]]
    systems: Mapping[str, tuple[float, float]]
    pairs: int
    machines: int
    right: float

    def of_engine(self, kind: str, engine: str, log_gain: float | Draws) -> float:
        """The probability that a cache of an engine is faster, from the logarithm of its predicted gain.

        Of draws of the gain: their mean.
        """
        level, sd = self.kinds.get(kind, self.kinds[ANY])
        if engine in self.engines:
            more, sd = self.engines[engine]
            level += more
        return self._above(level, sd, log_gain)

    def of_system(self, name: str, log_gain: float | Draws) -> float:
        """The same for a system of this program."""
        return self._above(*self.systems.get(name, self.kinds[ANY]), log_gain)

    def _above(self, level: float, sd: float, log_gain: float | Draws) -> float:
        above = np.atleast_1d((level + self.weight * cut(log_gain)) / math.hypot(sd, self.sd))
        return float(np.mean([NORMAL.cdf(one) for one in above.tolist()]))  # scipy's takes 0.3 s to import


def cut(log_gain: float | Draws) -> Draws:
    """The logarithm of a gain, never more than MOST."""
    return np.asarray(MOST * np.tanh(np.asarray(log_gain) / MOST))


@cache
def gains() -> Gains:
    """What the file beside this one has."""
    return parse(resources.files("flashmoe_sim.tune").joinpath(FILE).read_text(encoding="utf-8"))


def parse(text: str) -> Gains:
    """The gains that a file's text says."""
    document: dict[str, Any] = tomllib.loads(text)
    for table in ("kinds", "engines", "systems"):
        document[table] = {name: (level, sd) for name, (level, sd) in document[table].items()}
    return Gains(**document)


@dataclass(frozen=True)
class Likely:
    """How surely a cache decodes faster than a setting without one.

    p: the probability, with what caches gained in published pairs; None if there is no difference, and why_none says
    why. faster_in: the share of draws of all that is unknown in which it is faster, by which an answer is chosen.
    despite: why p and the two predicted speeds point different ways, or empty.
    """

    p: float | None
    faster_in: float
    why_none: str = ""
    despite: str = ""

    @property
    def rank(self) -> float:
        """By which likelier ones stand first; those without a difference last."""
        return -1.0 if self.p is None else self.p

    def as_row(self) -> dict[str, Any]:
        """`p_faster_than_plain` and what belongs to it, as in every document."""
        values = (self.p, self.faster_in, self.why_none or None, self.despite or None)
        return dict(zip(LIKELY_KEYS, values, strict=True))


@dataclass(frozen=True, eq=False)
class CachePays:
    """An expert cache beside the best setting without one that anybody can install, both while decoding.

    likely: how surely the cache is faster. least_bytes, least_share: of the cache's experts, in bytes and as a share
    of all, from which it is predicted to be faster; None if no size that fits is, or it has no size to choose.
    least_hit_rate: from which it is, at its setting; None if none is, or it has no bank.
    """

    cached: Compared
    plain: Compared
    likely: Likely
    least_bytes: float | None = None
    least_share: float | None = None
    least_hit_rate: float | None = None

    @property
    def gain(self) -> float:
        """How many times as fast the cache is predicted to be."""
        assert self.cached.tok_s
        assert self.plain.tok_s
        return self.cached.tok_s / self.plain.tok_s

    @property
    def more_ms(self) -> dict[str, float]:
        """Milliseconds a token that the cache takes more, by `systems.compare.GROUPS`."""
        assert self.cached.ms_per_token is not None
        assert self.plain.ms_per_token is not None
        return {group: ms - self.plain.ms_per_token[group] for group, ms in self.cached.ms_per_token.items()}

    def as_row(self) -> dict[str, Any]:
        """`cache_pays` of `sim recommend --json`."""
        return {
            "cache": self.cached.system.spec,
            "plain": self.plain.system.spec,
            **self.likely.as_row(),
            "gain": self.gain,
            "least_bytes": self.least_bytes,
            "least_share": self.least_share,
            "least_hit_rate": self.least_hit_rate,
            "more_ms": self.more_ms,
        }


def likely(cached: Compared, plain: Compared) -> Likely:
    """How surely a cache decodes faster than a setting without one; both run.

    The probability is the mean over draws of what is unknown of the machine and the engines. What published pairs add
    is the engine's own level, and how far pairs are from what is predicted: see `reports/field`. A cache that never
    hits, or is predicted to be as fast to NEAR, has none.
    """
    assert cached.draws is not None
    assert plain.draws is not None
    assert cached.tok_s
    assert plain.tok_s
    faster_in, gain = wins(cached, plain, Objective()), cached.tok_s / plain.tok_s
    if cached.hit_rate is not None and cached.hit_rate < NEVER:
        return Likely(None, faster_in, "the cache never hits")
    if abs(gain - 1) <= NEAR:
        return Likely(None, faster_in, f"their speeds are within {NEAR:.0%}")
    p = gains().of_system(cached.system.name, np.log(cached.draws / plain.draws))
    return Likely(p, faster_in, despite=despite(p, gain, faster_in=faster_in))


def despite(p: float, gain: float, *, faster_in: float | None = None) -> str:
    """Why a probability and a predicted gain point different ways; empty if they do not.

    faster_in: the share of draws in which it is faster, if any were drawn.
    """
    if (p > EVEN) == (gain > 1):
        return ""
    slower, more = ("slower", "more") if p > EVEN else ("faster", "less")
    if faster_in is not None and (faster_in > EVEN) == (p > EVEN):
        return f"predicted to be {slower}, but in {max(faster_in, 1 - faster_in):.0%} of the draws it is not"
    return f"predicted to be {slower}, but published pairs of its engine gained {more} than predicted"


def best_plain(rows: Sequence[Compared]) -> Compared | None:
    """The setting without a cache that an answer names among those that anybody can install; None if none runs."""
    plain = [row for row in rows if row.tok_s is not None and not row.system.caches]
    return common_first(plain, Objective())


def likely_faster(rows: Sequence[Compared]) -> tuple[Compared, dict[str, Likely]] | None:
    """The best setting without a cache, and how surely each system with one is faster, by its spec.

    None if nothing runs without a cache.
    """
    plain = best_plain(rows)
    if plain is None:
        return None
    cached = [row for row in rows if row.tok_s is not None and row.system.caches]
    return plain, {row.system.spec: likely(row, plain) for row in cached}


def cache_pays(found: SearchResult, case: Case, *, named: System) -> CachePays | None:
    """Whether a cache pays: the system that the answer names if it has a cache, else the likeliest one.

    None if nothing runs without a cache, or no engine with one runs there without changing the text.
    """
    plain = best_plain([one.best for one in found.systems])
    if plain is None:
        return None
    surely = {
        one: likely(one.best, plain)
        for one in found.systems
        if one.runs
        and one.best.system.caches
        and (one.best.system == named or (not one.best.system.changes_text(case) and _there(one.best, case)))
    }
    if not surely:
        return None
    best = max(surely, key=lambda one: (one.best.system == named, surely[one].rank))
    least = _least_bytes(best.tried, case, plain.tok_s or 0.0)
    return CachePays(
        best.best,
        plain,
        surely[best],
        least,
        None if least is None else least / case.model.routed_bytes,
        _least_hit_rate(best.best, case, plain.tok_s or 0.0),
    )


def _there(one: Compared, case: Case) -> bool:
    return runs_there(one.system, case.machine) and not one.tight


def _least_bytes(tried: Sequence[Compared], case: Case, tok_s: float) -> float | None:
    """The size from which a cache is as fast, between the sizes tried; None if no size is, or there is one alone."""
    sizes = sorted((_bank_bytes(one, case), one.tok_s) for one in tried if one.tok_s is not None)
    if len(sizes) < 2 or sizes[-1][1] < tok_s:
        return None
    slower = [place for place, (_, speed) in enumerate(sizes) if speed < tok_s]
    if not slower:
        return sizes[0][0]
    (low, below), (high, above) = sizes[slower[-1]], sizes[slower[-1] + 1]
    return low + (high - low) * (tok_s - below) / (above - below)


def _bank_bytes(one: Compared, case: Case) -> float:
    """Bytes of the experts in a system's bank."""
    bank = one.system.plan(case).setup.bank
    return case.model.bank_bytes(bank.slots) if bank.slots is not None else bank.budget_bytes or 0


def _least_hit_rate(one: Compared, case: Case, tok_s: float) -> float | None:
    """The hit rate from which a cache is as fast at its setting."""
    if not one.system.plan(case).execution.has_bank:
        return None

    def faster(rate: float) -> bool:
        tried = at_setting(None, case, one.system, hit_rate=rate, interval=False)
        return tried.tok_s is not None and tried.tok_s >= tok_s

    return _first(faster)


def _first(faster: Callable[[float], bool]) -> float | None:
    """The least share at which a growing test holds, to FINE_RATE; None if it does not hold at 1."""
    low, high = 0.0, 1.0
    if not faster(high):
        return None
    if faster(low):
        return low
    while high - low > FINE_RATE:
        middle = (low + high) / 2
        low, high = (low, middle) if faster(middle) else (middle, high)
    return high
