"""How well a choice made on one trace holds on another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flashmoe_sim.io.whole import temporary_folder
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.systems.base import Case, System
from flashmoe_sim.systems.compare import Compared, at_setting
from flashmoe_sim.tune.objective import Objective
from flashmoe_sim.tune.proof import pick


@dataclass(frozen=True, eq=False)
class Transfer:
    """The setting chosen on one trace, applied to another.

    tuned_on, scored_on: names of the traces. chosen, own: the settings that they lead to; None if none can be timed.
    seconds_more: how much longer `chosen` takes on the second trace than `own`, as a share; None if it does not run.
    with_profile: the same, with the profile of the whole first trace, against `own` with a profile of half the second;
        None for a system without a profile of its trace.
    why_not: why `chosen` does not run on the second trace, or empty.
    """

    tuned_on: str
    scored_on: str
    chosen: System | None
    own: System | None
    seconds_more: float | None
    with_profile: float | None = None
    why_not: str = ""

    def as_row(self) -> dict[str, Any]:
        """schema.TRANSFERS."""
        return {
            "tuned_on": self.tuned_on,
            "scored_on": self.scored_on,
            "setting": None if self.chosen is None else self.chosen.spec,
            "own_setting": None if self.own is None else self.own.spec,
            "seconds_more": self.seconds_more,
            "seconds_more_with_profile": self.with_profile,
            "why_not": self.why_not or None,
        }

    @property
    def sentence(self) -> str:
        """A sentence for the user."""
        if self.chosen is None or self.own is None:
            return f"{self.tuned_on if self.chosen is None else self.scored_on}: leads to no choice"
        of = f"{self.chosen.spec}, the choice of {self.tuned_on},"
        if self.seconds_more is None:
            return f"{of} does not run on {self.scored_on}: {self.why_not}"
        sentence = f"{of} is the choice of {self.scored_on} too"
        if self.chosen != self.own:
            sentence = (
                f"{of} takes {_longer(self.seconds_more)} on {self.scored_on} than {self.own.spec}, its own choice"
            )
        if self.with_profile is not None:
            sentence += f"; with the profile of {self.tuned_on} it takes {_longer(self.with_profile)} than with its own"
        return sentence


def across(
    workloads: Sequence[Workload],
    case: Case,
    settings: Sequence[System],
    *,
    objective: Objective,
) -> list[Transfer]:
    """Every ordered pair of traces of one model: the cost on the second trace of the choice made on the first.

    settings: of one system. Each is replayed on each trace once; a system with a profile needs one more replay per
        pair.
    """
    scores = [score(workload, case, settings, objective=objective) for workload in workloads]
    found = []
    for first, tuned in zip(workloads, scores, strict=True):
        for second, on in zip(workloads, scores, strict=True):
            if first is not second:
                found.append(_with_profile(transfer(tuned, on, objective), first, second, case, on, objective))
    return found


@dataclass(frozen=True, eq=False)
class Scores:
    """Settings compared on one trace; name: of the trace."""

    name: str
    each: Mapping[System, Compared]

    def pick(self, objective: Objective) -> Compared | None:
        return pick(list(self.each.values()), objective)

    def seconds_more(self, chosen: System, objective: Objective) -> float | None:
        """How much longer a setting takes than the one this trace leads to, as a share; None if it cannot be timed."""
        own, seconds = self.pick(objective), objective.seconds(self.each[chosen])
        least = None if own is None else objective.seconds(own)
        return None if seconds is None or not least else seconds / least - 1


def score(workload: Workload, case: Case, settings: Iterable[System], *, objective: Objective) -> Scores:
    """Replay settings on a trace."""
    return Scores(workload.trace.name, {one: _timed(workload, case, one, objective) for one in settings})


def _timed(workload: Workload, case: Case, system: System, objective: Objective) -> Compared:
    return at_setting(workload, case, system, interval=False, prompt_tokens=objective.prompt_tokens)


def transfer(tuned: Scores, on: Scores, objective: Objective) -> Transfer:
    """The cost on one trace of the choice made on another, each with its own profiles."""
    chosen, own = tuned.pick(objective), on.pick(objective)
    return Transfer(
        tuned.name,
        on.name,
        None if chosen is None else chosen.system,
        None if own is None else own.system,
        None if chosen is None else on.seconds_more(chosen.system, objective),
        why_not="" if chosen is None else on.each[chosen.system].why_not,
    )


def _with_profile(
    found: Transfer, first: Workload, second: Workload, case: Case, on: Scores, objective: Objective
) -> Transfer:
    if found.chosen is None or found.own is None:
        return found
    with temporary_folder() as folder:
        system = found.chosen.with_profile_of(first.trace, folder)
        if system is None:
            return found
        seconds = objective.seconds(_timed(second, case, system, objective))
    least = objective.seconds(on.each[found.own])
    return found if seconds is None or not least else replace(found, with_profile=seconds / least - 1)


def _longer(share: float) -> str:
    return f"{100 * abs(share):.0f}% {'less' if share < 0 else 'longer'}"
