"""A question asked again after one change, of its machine or its model, with the systems sized again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.systems.base import Case, System
from flashmoe_sim.systems.compare import Compared, Replays, at_setting
from flashmoe_sim.tune.objective import Objective
from flashmoe_sim.tune.proof import common_first, first, pick, proof, wins
from flashmoe_sim.tune.search import FINE, WORTH, stretch

# Replays are kept in memory, up to some 3 MB each, so a longer trace is cut.
MOST_REFS, MOST_KEPT = 250_000, 192
TRIED_REFS = 100_000  # references of the stretch on which a change is tried that is seldom worth it
LIKELY = 0.6  # share of the draws without intervals


@dataclass(frozen=True, eq=False)
class Changed:
    """A question before and after one change.

    change: in words, or the other model's name. before, after: the recommended system; after: without its interval if
    an answer does not name the change. again: times it with its interval, unless it has one.
    """

    change: str
    before: Compared
    after: Compared
    again: Callable[[], Compared] | None = None

    @cached_property
    def sure(self) -> Compared:
        """`after` with its interval."""
        return self.after if self.after.sure or self.again is None else self.again()

    @property
    def times(self) -> float:
        """How many times as fast it is; infinite if nothing runs before."""
        if self.after.tok_s is None:
            return 1.0
        return self.after.tok_s / self.before.tok_s if self.before.tok_s else float("inf")

    @property
    def gain(self) -> float:
        """The gain in speed, 0.1 for 10%."""
        return self.times - 1

    @property
    def memory(self) -> str:
        """The changed memory, such as `GiB of RAM instead of 32`; empty if something else changed."""
        size, _, rest = self.change.partition(" ")
        return rest if size.isdecimal() else ""

    def as_row(self) -> dict[str, Any]:
        return {
            "change": self.change,
            "setting": self.after.system.spec,
            "tok_s": self.after.tok_s,
            "tok_s_lo": self.sure.tok_s_lo,
            "tok_s_hi": self.sure.tok_s_hi,
            "before_tok_s": self.before.tok_s,
            "gain": self.gain,
        }


def at_own_size(
    workload: Workload, case: Case, system: System, *, prompt_tokens: int = 0, replays: Replays | None = None
) -> Compared:
    """A system at its given size, or at the one its own rule chooses, without an interval; if it cannot run, why."""
    try:
        sized = system.sized(case)
    except BadInput as error:
        return Compared.refused(system, error)
    return at_setting(workload, case, sized, interval=False, prompt_tokens=prompt_tokens, replays=replays)


class _Latest(OrderedDict[Any, Any]):
    """The replays that were used last."""

    def __getitem__(self, key: Any) -> Any:
        self.move_to_end(key)
        return super().__getitem__(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        if len(self) > MOST_KEPT:
            self.popitem(last=False)


class WhatIf:
    """A case asked again on other machines, of the first 250,000 references of one trace, from replays they share.

    evaluations: number of settings timed on a machine.
    now: what is recommended on the machine as it is, by the whole trace; by default the fastest system by the first
        references. Speeds are those of the first references, times what `now` has over the fastest system by these.
    replays: of the whole trace, which are used unless it is cut.
    """

    def __init__(
        self,
        workload: Workload,
        case: Case,
        systems: Sequence[System],
        *,
        now: Compared | None = None,
        borrowed: bool = False,
        replays: Replays | None = None,
    ) -> None:
        self.case, self.systems, self.borrowed = case, tuple(systems), borrowed
        self.workload = stretch(workload, MOST_REFS)
        self.replays: Replays = _Latest((replays or {}) if self.workload is workload else {})
        self.evaluations = 0
        self.times = 1.0
        before = self.fastest(case.machine)
        if now is not None and now.tok_s and before.tok_s:
            self.times = now.tok_s / before.tok_s
        self.now = now or self.sure(before, case.machine)

    def changed(self, change: str, machine: Machine) -> Changed:
        """A change to another machine; its interval is replayed again later, so that no replays are kept for that."""
        alone, after = copy(self), self.fastest(machine)
        alone.replays = {}
        return Changed(change, self.now, after, partial(alone.sure, after, machine))

    def fastest(self, machine: Machine) -> Compared:
        """The system that an answer names first at its fastest size, without an interval; if none runs, the first one
        and why not.

        Every system is tried at its largest size, at the size of its own rule and at its given size. For systems at
        least half as fast as the fastest, the other sizes are tried too, and for the fastest also larger ones.
        """
        case = replace(self.case, machine=machine)
        tried = {system.unsized: self._ends(system.unsized, case) for system in self.systems}
        for system in self.systems:
            ends = tried[system.unsized]
            if system.size_given and system.size and all(one.system != system for one in ends):
                ends.append(self._at(system, case))
        most = max(one.tok_s or 0.0 for ends in tried.values() for one in ends)
        for system, ends in tried.items():
            if most and max(one.tok_s or 0.0 for one in ends) >= WORTH * most:
                known = [one.system for one in ends]
                ends += [self._at(one, case) for one in _sizes(system, case) if one not in known]
        each = [max(ends, key=lambda one: one.tok_s or 0.0) for ends in tried.values()]
        return self._beyond(self._first(each, case) or each[0], case)

    def _first(self, each: Sequence[Compared], case: Case) -> Compared | None:
        """The one that an answer names first: with intervals, if another engine may stand before what anybody can
        install."""
        goal = Objective()
        plain = common_first(each, goal)
        if plain is None:
            return first(each, case, goal)
        faster = [one for one in each if not one.system.common and one.tok_s and wins(one, plain, goal) > LIKELY]
        shown = [one for one in faster if proof(one.system, case).shown]
        if not shown:
            return first(each, case, goal)
        tried = [plain, pick(shown, goal) or plain]
        named = first([self.sure(one, case.machine) for one in tried], case, goal)
        return next((one for one in tried if named is not None and named.system == one.system), plain)

    def _beyond(self, found: Compared, case: Case) -> Compared:
        """The fastest of a setting and larger ones up to the size that does not fit, by bisection."""
        size = found.system.size
        if found.tok_s is None or not size:
            return found
        own = getattr(found.system, size)
        larger = [getattr(one, size) for one in _sizes(found.system.unsized, case)]
        refused = min((value for value in larger if value > own), default=own)
        best = found
        while refused - own > max(1, FINE * refused):
            middle = self._at(found.system.of_size((own + refused) // 2), case)
            if middle.tok_s is None:
                refused = (own + refused) // 2
                continue
            own = (own + refused) // 2
            best = max(best, middle, key=lambda one: one.tok_s or 0.0)
        return best

    def sure(self, found: Compared, machine: Machine) -> Compared:
        """A setting with its interval, if it runs."""
        return found if found.tok_s is None else self._at(found.system, replace(self.case, machine=machine), sure=True)

    def _ends(self, system: System, case: Case) -> list[Compared]:
        """The size of the system's own rule, and the largest size that runs; if neither runs, why not."""
        try:
            if reason := system.why_not(case):
                return [Compared(system, reason)]
            found = [self._at(system.sized(case), case)]
        except BadInput as error:
            found = [Compared.refused(system, error)]
        for size in reversed(_sizes(system, case)):
            largest = self._at(size, case)
            if largest.tok_s is not None:
                return [*found, largest]
        return found

    def _at(self, system: System, case: Case, *, sure: bool = False) -> Compared:
        found = at_setting(self.workload, case, system, borrowed=self.borrowed, interval=sure, replays=self.replays)
        self.evaluations += found.tok_s is not None
        if found.tok_s is None or found.draws is None:
            return found
        return replace(found, tok_s=self.times * found.tok_s, draws=self.times * found.draws)


def _sizes(system: System, case: Case) -> list[System]:
    """The system at each of its sizes, in the order of the memory that they use."""
    if system.size_given:
        return []
    try:
        return [system.of_size(size) for size in system.sizes(case)]
    except BadInput:
        return []
