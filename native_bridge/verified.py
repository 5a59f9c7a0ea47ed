"""A recommended line that was run, and what may be faster: measured beside predicted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median
from typing import Any

import numpy as np

from flashmoe_sim.machines.belief import ENDS_OF_90
from flashmoe_sim.systems.compare import NEAR
from flashmoe_sim.tune.recommend import Recommendation
from flashmoe_sim.tune.trials import Trial
from native_bridge.tuning.session import Session


@dataclass(frozen=True, eq=False)
class MeasuredSetting:
    """A setting and its runs.

    predicted_s: seconds of the objective with knobs as they are by default, the middle and a 90% interval. measured_s:
    of its runs; none if they failed. failed: why runs did.
    """

    trial: Trial
    predicted_s: tuple[float, float, float]
    measured_s: tuple[float, ...]
    failed: tuple[str, ...]

    @property
    def median_s(self) -> float | None:
        return median(self.measured_s) if self.measured_s else None

    @property
    def held(self) -> bool | None:
        """Whether the median is within the predicted interval; None if every run failed."""
        _, lo, hi = self.predicted_s
        return None if self.median_s is None else lo <= self.median_s <= hi


@dataclass(frozen=True, eq=False)
class Verified:
    """A search that began with the recommended line. place: of it among the settings."""

    session: Session
    place: int

    @property
    def settings(self) -> list[MeasuredSetting]:
        """Those that ran, the recommended one first."""
        grid, search = self.session.grid, self.session.search
        found = []
        for place in sorted(search.by_place, key=lambda place: place != self.place):
            outcomes, one = search.by_place[place], grid.predicted(place)
            lo, hi = np.quantile(grid.objective.draws_s(one), ENDS_OF_90).tolist()
            measured = tuple(each.seconds for each in outcomes if each.seconds is not None)
            failed = tuple(each.failed for each in outcomes if each.seconds is None)
            middle = grid.objective.seconds(one)
            assert middle is not None
            found.append(MeasuredSetting(grid.trials[place], (middle, lo, hi), measured, failed))
        return found

    @property
    def recommended(self) -> MeasuredSetting:
        return self.settings[0]

    @property
    def fastest(self) -> MeasuredSetting | None:
        """The one that is likely the fastest; None if every run failed."""
        best = self.session.search.best
        return (
            None if best is None else next(one for one in self.settings if one.trial == self.session.grid.trials[best])
        )

    @property
    def lost(self) -> float | None:
        """The share of the fastest one's speed that the recommended one lacks; None if it has no speed."""
        fastest, mine = self.fastest, self.recommended.median_s
        if fastest is None or fastest.median_s is None or mine is None:
            return None
        return 1 - fastest.median_s / mine

    @property
    def failed(self) -> list[str]:
        """Why the recommended setting has no speed; none if it has one."""
        return [] if self.recommended.measured_s else [f"{self.recommended.trial.spec}: {self.recommended.failed[-1]}"]

    @property
    def measured_options(self) -> list[str]:
        """The decode speeds as values of --measured: those with the knobs of the fastest, such as its threads."""
        if self.fastest is None or self.session.grid.objective.goal != "decode":
            return []
        alike = [one for one in self.settings if one.trial.knobs == self.fastest.trial.knobs and one.median_s]
        return [f"{one.trial.system.spec}={1 / one.median_s:.4g}" for one in alike if one.median_s]

    def in_short(self) -> str:
        """One sentence: how the recommended setting did, and whether intervals held."""
        return f"{'; '.join(self._clauses())}."

    def _clauses(self) -> Iterator[str]:
        name, fastest, lost = self.recommended.trial.spec, self.fastest, self.lost
        if fastest is None or lost is None:
            yield f"{name}, the recommended setting, has no speed: its runs failed"
        elif fastest.trial == self.recommended.trial:
            yield f"{name} was the fastest, as recommended"
        elif lost <= NEAR:
            yield f"{name}, as recommended, was within 3% of the fastest, {fastest.trial.spec}"
        else:
            yield f"{name}, the recommended setting, was {lost:.0%} slower than {fastest.trial.spec}"
        if sure := self.session.search.sure:
            yield f"nothing else is more than 3% faster, with {sure:.0%}"
        ran = [one for one in self.settings if one.measured_s]
        yield f"{sum(one.held is True for one in ran)} of {len(ran)} speeds were within their 90% interval"


@dataclass(frozen=True, eq=False)
class VerifiedAdvice(Recommendation):
    """Advice with the runs of its settings, which are made when they are first wanted: after the advice is shown."""

    verify: Callable[[Recommendation], Verified] = field(kw_only=True)

    @cached_property
    def verified(self) -> Verified:
        """The recommended line and what may be faster, run."""
        return self.verify(self)


def as_json(verified: Verified) -> dict[str, Any]:
    """The result for `--json`."""
    session, fastest = verified.session, verified.fastest
    goal = session.grid.objective
    tokens = {"decode": 1, "prompt": goal.prompt_tokens}.get(goal.goal)

    def tok_s(seconds: float | None) -> float | None:
        return tokens / seconds if tokens and seconds else None

    return {
        "model": session.grid.case.model.name,
        "engine": str(session.program.path),
        "build": session.program.version,
        "in_short": verified.in_short(),
        "recommended": verified.recommended.trial.spec,
        "fastest": None if fastest is None else fastest.trial.spec,
        "lost": verified.lost,
        "sure": session.search.sure,
        "minutes": session.spent_minutes,
        "command": None if session.search.best is None else session.launch(session.search.best).line,
        "measured_options": verified.measured_options,
        "settings": [
            {
                "setting": one.trial.spec,
                **dict(zip(("tok_s", "tok_s_hi", "tok_s_lo"), map(tok_s, one.predicted_s), strict=True)),
                "measured_tok_s": tok_s(one.median_s),
                "measured": [tok_s(each) for each in one.measured_s],
                "seconds": one.predicted_s[0],
                "measured_seconds": one.median_s,
                "within_interval": one.held,
                "failed": list(one.failed),
            }
            for one in verified.settings
        ],
    }
