"""Predicted settings, their measured speeds, and whether the prediction held."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from math import comb
from statistics import median
from typing import Any, NamedTuple

from flashmoe_sim.systems.base import System
from flashmoe_sim.tune.recommend import Recommendation, neighbours

CHANCE = 1 / 8  # that one of two equally fast settings wins enough rounds to count as clearly faster


class Claim(NamedTuple):
    """A system with its settings, and its predicted decode speed: tokens a second, with a 90% interval."""

    system: System
    tok_s: float
    tok_s_lo: float
    tok_s_hi: float


@dataclass(frozen=True)
class MeasuredSetting:
    """One setting and its runs.

    tok_s: the decode speed of each round, None if its run failed. hit_rate: of all routed requests of its runs; None if
    nothing was routed through slots. counted: slots and counters that were compared with the simulator's.
    differences: where they differ. failed: why runs failed.
    """

    claim: Claim
    tok_s: tuple[float | None, ...]
    hit_rate: float | None
    counted: int
    differences: tuple[str, ...]
    failed: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.claim.system.spec

    @property
    def speeds(self) -> list[float]:
        """The speeds of the runs that did not fail."""
        return [each for each in self.tok_s if each is not None]

    @property
    def median_tok_s(self) -> float | None:
        return median(self.speeds) if self.speeds else None

    @property
    def held(self) -> bool | None:
        """Whether the median is within the predicted interval; None if every run failed."""
        measured = self.median_tok_s
        return None if measured is None else self.claim.tok_s_lo <= measured <= self.claim.tok_s_hi

    @property
    def counts(self) -> str:
        """`equal`, `differ`, or `-` if nothing was compared."""
        return "differ" if self.differences else "equal" if self.counted else "-"


def clearly_faster(one: MeasuredSetting, other: MeasuredSetting) -> bool:
    """Whether one was faster in more of their common rounds than two equal settings would be by chance.

    Speeds are compared within rounds, so that anything that slows a whole round counts for neither.
    """
    rounds = [(a, b) for a, b in zip(one.tok_s, other.tok_s, strict=True) if a is not None and b is not None]
    won = sum(a > b for a, b in rounds)
    as_many = sum(comb(len(rounds), wins) for wins in range(won, len(rounds) + 1))
    return as_many <= CHANCE * (1 << len(rounds))


@dataclass(frozen=True)
class Verified:
    """The settings in the given order, the recommended one first. cache: the state of the page cache."""

    settings: tuple[MeasuredSetting, ...]
    model: str
    cache: str
    rounds: int

    @property
    def recommended(self) -> MeasuredSetting:
        return self.settings[0]

    @property
    def fastest(self) -> MeasuredSetting | None:
        """The setting with the highest median; None if every run failed."""
        return max((one for one in self.settings if one.speeds), key=lambda one: median(one.speeds), default=None)

    @property
    def lost(self) -> float | None:
        """The share of the fastest one's speed that the recommended one lacks; None if it has no speed."""
        fastest, recommended = self.fastest, self.recommended
        return 1 - median(recommended.speeds) / median(fastest.speeds) if fastest and recommended.speeds else None

    @property
    def within_noise(self) -> bool | None:
        """Whether nothing was clearly faster than the recommended one; None if it has no speed."""
        others = self.settings[1:]
        return not any(clearly_faster(one, self.recommended) for one in others) if self.recommended.speeds else None

    @property
    def out_of_order(self) -> list[tuple[MeasuredSetting, MeasuredSetting]]:
        """Pairs in which the first has the higher median, and the second the higher predicted speed."""
        ran = sorted((one for one in self.settings if one.speeds), key=lambda one: one.claim.tok_s)
        return [
            (one, other)
            for one, other in combinations(ran, 2)
            if one.claim.tok_s < other.claim.tok_s and median(one.speeds) > median(other.speeds)
        ]

    @property
    def contradicted(self) -> list[tuple[MeasuredSetting, MeasuredSetting]]:
        """The pairs out of order in which the first was clearly faster."""
        return [(one, other) for one, other in self.out_of_order if clearly_faster(one, other)]

    @property
    def failed(self) -> list[str]:
        return [line for one in self.settings for line in one.failed]

    @property
    def measured_options(self) -> list[str]:
        """The speeds as values of --measured."""
        medians = [(one.name, one.median_tok_s) for one in self.settings]
        return [f"{name}={tok_s:.4g}" for name, tok_s in medians if tok_s is not None]

    def in_short(self) -> str:
        """One sentence: how the recommended setting did, and whether order, intervals and counts held."""
        return f"{'; '.join(self._clauses())}."

    def _clauses(self) -> Iterator[str]:
        name, fastest = self.recommended.name, self.fastest
        if fastest is None or self.lost is None:
            yield f"{name}, the recommended one, has no speed: its runs failed"
        elif fastest is self.recommended:
            yield f"{name} was the fastest, as recommended"
        else:
            noise = f", within the noise of {self.rounds} rounds" if self.within_noise else ""
            yield f"{name}, the recommended one, was {self.lost:.1%} slower than {fastest.name}{noise}"
        ran = [one for one in self.settings if one.speeds]
        if wrong := self.contradicted:
            pairs = [f"{one.name} was faster than {other.name}" for one, other in wrong]
            yield f"against the prediction, {' and '.join(pairs)}"
        elif len(ran) > 1:
            yield "no pair was clearly in another order" if self.out_of_order else "the predicted order held"
        yield f"{sum(one.held is True for one in ran)} of {len(ran)} speeds were within their 90% interval"
        if differing := [one.name for one in ran if one.differences]:
            yield f"the counts of {' and '.join(differing)} differ"
        elif any(one.counted for one in ran):
            yield "all counts were equal"


@dataclass(frozen=True, eq=False)
class VerifiedAdvice(Recommendation):
    """Advice with the runs of its settings, which are made when they are first wanted: after the advice is shown."""

    verify: Callable[[Sequence[Claim]], Verified] = field(kw_only=True)

    @cached_property
    def verified(self) -> Verified:
        """The recommended setting and its neighbours, run."""
        return self.verify(claims_of(self))


def claims_of(found: Recommendation) -> list[Claim]:
    """The recommended setting and its neighbours, each with its speed and interval."""
    return [
        Claim(one.system, one.tok_s, one.tok_s_lo, one.tok_s_hi)
        for one in neighbours(found)
        if one.tok_s is not None and one.tok_s_lo is not None and one.tok_s_hi is not None
    ]


def as_json(verified: Verified) -> dict[str, Any]:
    """The result for `--json`."""
    fastest = verified.fastest
    return {
        "model": verified.model,
        "page_cache": verified.cache,
        "rounds": verified.rounds,
        "in_short": verified.in_short(),
        "recommended": verified.recommended.name,
        "fastest": fastest.name if fastest is not None else None,
        "lost": verified.lost,
        "within_noise": verified.within_noise,
        "measured_options": verified.measured_options,
        "contradicted": [[one.name, other.name] for one, other in verified.contradicted],
        "settings": [
            {
                "setting": one.name,
                "tok_s": one.claim.tok_s,
                "tok_s_lo": one.claim.tok_s_lo,
                "tok_s_hi": one.claim.tok_s_hi,
                "measured_tok_s": one.median_tok_s,
                "measured": list(one.tok_s),
                "within_interval": one.held,
                "hit_rate": one.hit_rate,
                "counts": one.counts,
                "counted": one.counted,
                "differences": list(one.differences),
                "failed": list(one.failed),
            }
            for one in verified.settings
        ],
    }
