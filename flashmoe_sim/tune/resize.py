"""Systems sized again for each of many machines, from replays that the machines share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import partial

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.systems.base import Case, System
from flashmoe_sim.systems.compare import Compared, Replays, at_setting
from flashmoe_sim.tune.objective import Objective
from flashmoe_sim.tune.proof import common_first, first, pick, proof, wins
from flashmoe_sim.tune.search import FINE, WORTH, stretch

# The replays of all sizes are kept in memory, so a longer trace is cut.
MOST_REFS = 250_000
LIKELY = 0.6  # share of the draws without intervals


class Resizer:
    """Systems on changing machines, with one model and the first 250,000 references of one trace.

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
        self.replays: Replays = dict(replays or {}) if self.workload is workload else {}
        self.evaluations = 0
        self.times = 1.0
        before = self.fastest(case.machine)
        if now is not None and now.tok_s and before.tok_s:
            self.times = now.tok_s / before.tok_s
        self.now = now or (before if before.tok_s is None else self.sure(before, case.machine))

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
        """The setting with its interval."""
        return self._at(found.system, replace(self.case, machine=machine), interval=True)

    def later(self, found: Compared, machine: Machine) -> Callable[[], Compared]:
        """`sure`, for a later time: it replays again, so that the replays of now need not be kept."""
        alone = copy(self)
        alone.replays = {}
        return partial(alone.sure, found, machine)

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

    def _at(self, system: System, case: Case, *, interval: bool = False) -> Compared:
        found = at_setting(self.workload, case, system, borrowed=self.borrowed, interval=interval, replays=self.replays)
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
