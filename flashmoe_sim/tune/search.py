"""The search: every system at every size worth trying, then the settings that change the speed but not the text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.systems.base import Case, System
from flashmoe_sim.systems.compare import NEAR, Compared, Replays, at_setting
from flashmoe_sim.trace.cut import cut
from flashmoe_sim.tune.objective import Objective
from flashmoe_sim.tune.proof import kept_bytes, pick

# Systems slower than this share of the fastest one are not searched further than their sizes.
WORTH = 0.5
# Sizes are tried on at most this many references, and those that could be chosen on the whole trace.
COARSE_REFS = 2_000_000
KEPT_REFS = 400_000  # of a trace whose best replay of each system is kept for the rest of an answer
FINE = 1 / 16  # the step between sizes, as a share of the size, at which the search for a size ends


@dataclass(frozen=True, eq=False)
class Searched:
    """What was tried for one system.

    best: at its best setting, with its interval; if it cannot run, why. tried: its sizes that ran, with the other
    settings of `best`, in ascending order of memory. others: `best` with one of its choices made differently.
    """

    best: Compared
    tried: tuple[Compared, ...] = ()
    others: tuple[Compared, ...] = ()

    @property
    def runs(self) -> bool:
        return self.best.tok_s is not None


@dataclass(frozen=True, eq=False)
class SearchResult:
    """Every system at its best, the fastest first, then those that cannot run.

    evaluations: settings replayed. replays: of the best settings, valid for any machine; None if they are not kept.
    """

    systems: tuple[Searched, ...]
    evaluations: int
    objective: Objective
    replays: Replays | None = None


def search(
    workload: Workload,
    case: Case,
    systems: Sequence[System],
    *,
    objective: Objective | None = None,
    borrowed: bool = False,
    replays: Replays | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> SearchResult:
    """Find the best setting of each system on a case.

    Every size of every system is replayed, with every value of `System.prompt_choices` if the prompt counts. For
    systems at least half as fast as the fastest, sizes in between and each value of `System.choices` are replayed too,
    one setting after another, until none gains 3%. For a long trace, a stretch of it is used first.
    borrowed: whether the trace is another model's. replays: of this workload, valid for any machine; new ones are
    added.
    """
    searcher = _Searcher(workload, case, objective or Objective(), borrowed=borrowed, replays=replays)
    coarse = []
    for number, system in enumerate(systems):
        if progress is not None:
            progress(number, 2 * len(systems))
        coarse.append(searcher.sizes_of(system))
        searcher.forget_but(one.best.system for one in coarse)
    speeds = [1 / seconds for one in coarse if (seconds := searcher.seconds(one.best)) is not None]
    found = []
    for number, (system, one) in enumerate(zip(systems, coarse, strict=True)):
        if progress is not None:
            progress(len(systems) + number, 2 * len(systems))
        seconds = searcher.seconds(one.best)
        near = seconds is not None and 1 / seconds >= WORTH * max(speeds)
        found.append(searcher.with_interval(searcher.refined(one, system) if near else one))
        searcher.forget_but(one.best.system for one in (*coarse, *found))
    order = sorted(found, key=lambda one: searcher.seconds(one.best) or math.inf)
    return SearchResult(tuple(order), searcher.evaluations, searcher.objective, searcher.replays)


class _Searcher:
    """One search, with its replays so far, on the stretch or on the whole trace."""

    def __init__(
        self, workload: Workload, case: Case, objective: Objective, *, borrowed: bool, replays: Replays | None
    ) -> None:
        kept: Replays | None = {} if workload.trace.refs <= KEPT_REFS else None
        self.keeps_all, self.replays = replays is not None, kept if replays is None else replays
        self.case, self.objective, self.borrowed = case, objective, borrowed
        self.whole, self.stretch = workload, stretch(workload, COARSE_REFS)
        self.known: dict[tuple[Workload, System], Compared] = {}

    @property
    def evaluations(self) -> int:
        return sum(one.tok_s is not None for one in self.known.values())

    def seconds(self, found: Compared) -> float | None:
        return self.objective.seconds(found)

    def at(self, system: System, workload: Workload) -> Compared:
        if (key := (workload, system)) not in self.known:
            tokens = self.objective.prompt_tokens
            replays = self.replays if workload is self.whole else None
            self.known[key] = at_setting(
                workload, self.case, system, interval=False, prompt_tokens=tokens, replays=replays
            )
        return self.known[key]

    def forget_but(self, systems: Iterable[System]) -> None:
        """Drop the replays of other settings, unless the caller wants all."""
        if self.replays is not None and not self.keeps_all:
            kept = set(systems)
            for key in [key for key in self.replays if key[0] not in kept]:
                del self.replays[key]

    def sizes_of(self, system: System) -> Searched:
        """The system at each of its sizes, on the stretch, with its best prompt choices if prompts count."""
        if reason := system.why_not(self.case):
            return Searched(Compared(system, reason))
        wanted = [system]
        for name, values in self._prompt_choices(system).items():
            wanted = [replace(one, **{name: value}) for one in wanted for value in values]
        ways, refused = [], list[BadInput]()
        for one in wanted:
            try:
                ways.append(one.at_each_size(self.case))
            except BadInput as error:
                refused.append(error)
        if not ways:
            return Searched(Compared.refused(system, refused[0]))
        found = [self._searched([self.at(one, self.stretch) for one in each]) for each in ways]
        best = pick([one.best for one in found], self.objective)
        return next((one for one in found if one.best is best), found[0])

    def _prompt_choices(self, system: System) -> Mapping[str, tuple[Any, ...]]:
        """The prompt choices that the user left open, if the prompt counts."""
        if not self.objective.prompt_tokens:
            return {}
        default = {item.name: item.default for item in fields(system)}
        given = {name for name in system.prompt_choices if getattr(system, name) != default[name]}
        return {name: values for name, values in system.prompt_choices.items() if name not in given}

    def refined(self, coarse: Searched, wanted: System) -> Searched:
        """Refine with sizes between those tried, and with the system's other choices, on the whole trace."""
        found = self._searched([self.at(one.system, self.whole) for one in coarse.tried])
        if wanted.size and not wanted.size_given and not wanted.fixed_sizes:
            found = self._between(found)
        choices = {**wanted.choices, **self._prompt_choices(wanted)}
        while True:
            others = self._others(found.best.system, choices)
            better = min(others, key=self._rank, default=found.best)
            if self._rank(better) >= (1 - NEAR) * self._rank(found.best):
                return replace(found, others=tuple(others))
            chosen = {name: getattr(better.system, name) for name in choices}
            settings = [replace(one.system, **chosen) for one in found.tried]
            found = self._searched([self.at(one, self.whole) for one in self._allowed(settings) or settings])

    def _between(self, found: Searched) -> Searched:
        """Bisect between the best size and the next smaller one; go beyond the largest size if it is the fastest."""
        system = found.best.system
        fits = [getattr(one.system, system.size) for one in found.tried]
        refused = [size for size in system.sizes(self.case) if size > max(fits)]
        while gap := self._gap(found, refused):
            middle = sum(gap) // 2
            one = self.at(system.of_size(middle), self.whole)
            if one.tok_s is None or one.tight:
                refused.append(middle)
            else:
                found = self._searched([*found.tried, one])
        return found

    def _gap(self, found: Searched, refused: Sequence[int]) -> tuple[int, int] | None:
        """Two sizes that may have better ones between them; None if none are left to try.

        refused: sizes that do not run, or too tightly: also between two that run, if all do so tightly.
        """
        size = found.best.system.size
        by_size = {getattr(one.system, size): one for one in found.tried}
        sizes = sorted(by_size)
        place = sizes.index(getattr(found.best.system, size))
        gaps = [(sizes[place - 1], sizes[place])] if place else []
        beyond = [one for one in refused if one > sizes[-1]]
        if beyond and by_size[sizes[-1]] is min(found.tried, key=self._rank):
            gaps.append((sizes[-1], min(beyond)))
        wide = (gap for gap in gaps if gap[1] - gap[0] > max(1, FINE * gap[1]))
        return next((gap for gap in wide if sum(gap) // 2 not in refused), None)

    def _allowed(self, settings: Sequence[System]) -> list[System]:
        """The settings that are not below the smallest size worth trying, which may depend on other settings."""

        def least(system: System) -> int:
            return min(system.sizes(self.case), default=0)

        return [one for one in settings if not one.size or getattr(one, one.size) >= least(one)]

    def _others(self, system: System, choices: Mapping[str, tuple[Any, ...]]) -> list[Compared]:
        """The system with each one of these choices made differently, as far as it runs."""
        found = []
        for name, values in choices.items():
            for value in values:
                try:
                    other = replace(system, **{name: value})
                except BadInput:  # incompatible with the other settings
                    continue
                if name in system.prompt_choices and not self._allowed([other]):
                    continue
                if other != system and (one := self.at(other, self.whole)).tok_s is not None:
                    found.append(one)
        return found

    def _rank(self, found: Compared) -> float:
        return self.seconds(found) or math.inf

    def _searched(self, tried: Sequence[Compared]) -> Searched:
        ran = sorted((one for one in tried if one.tok_s is not None), key=kept_bytes)
        ran = [one for one in ran if not one.tight] or ran
        best = pick(ran, self.objective) or (ran or tried)[0]
        return Searched(best, tuple(ran))

    def with_interval(self, found: Searched) -> Searched:
        """The best setting with its interval, on the whole trace."""
        if not found.runs:
            return found
        tokens = self.objective.prompt_tokens
        best = at_setting(
            self.whole,
            self.case,
            found.best.system,
            borrowed=self.borrowed,
            prompt_tokens=tokens,
            replays=self.replays,
        )
        return replace(found, best=best, tried=tuple(best if one is found.best else one for one in found.tried))


def stretch(workload: Workload, most_refs: int) -> Workload:
    """The first steps of the workload with at most `most_refs` references, or all of it."""
    trace = workload.trace
    if trace.refs <= most_refs:
        return workload
    steps = max(int(np.unique(trace.steps).size * most_refs / trace.refs), 1)
    return prepare(cut(trace, steps=(None, steps)), workload.geometry)
