"""The settings of a program that a search by real runs chooses among, with their predictions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from itertools import product
from types import MappingProxyType
from typing import Any

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.measured.learn import with_more_memory
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.systems.base import Case, System
from flashmoe_sim.systems.compare import Compared, at_setting
from flashmoe_sim.systems.fits import nothing_runs
from flashmoe_sim.systems.placed import PlacedLayers
from flashmoe_sim.systems.split import written
from flashmoe_sim.tune.objective import Objective
from flashmoe_sim.tune.trials import LAYERS, Search, Trial, prospects

BEYOND = 3  # fewer layers on the CPU than the plan says: it may be wrong
FULL = 0.15  # of what a plan keeps in the GPU's memory: with less left free, it may be full
EACH, WIDER = 4, 1.25  # so many numbers of layers are tried one by one, and then every so many times as many
FASTEST = 2  # settings of a system that are tried with its other choices, and on other cases


@dataclass(frozen=True, eq=False)
class Grid:
    """The settings, with the prediction of each system.

    before_s: seconds of each system to fill the context up to the depth; none at depth 0. others: predictions on the
    cases that knobs make, such as with other types of keys and values.
    """

    trials: tuple[Trial, ...]
    timed: dict[System, Compared]
    case: Case
    objective: Objective
    before_s: Mapping[System, float]
    others: Mapping[tuple[str, str], Mapping[System, Compared]] = field(default_factory=dict)

    def predicted(self, place: int) -> Compared:
        """The prediction of a setting, without its knobs."""
        return self.of(self.trials[place])

    def of(self, trial: Trial) -> Compared:
        """The same of a trial."""
        case = next((knob for knob in trial.knobs if knob in self.others), None)
        return (self.timed if case is None else self.others[case])[trial.system]

    def search(self) -> Search:
        """A search among them, before any ran."""
        found = [self.of(one) for one in self.trials]
        prior = prospects(self.trials, found, self.case, self.objective)
        kept = {"gpu": [one.gpu_bytes or 0 for one in found], "ram": [one.ram_bytes or 0 for one in found]}
        full = [one.tight or (one.gpu_free_bytes or 0) < FULL * (one.gpu_bytes or 0) for one in found]
        return Search(self.trials, prior, [one.tight for one in found], full, kept)


def grid(
    workload: Workload,
    case: Case,
    systems: Sequence[System],
    objective: Objective,
    *,
    knobs: Mapping[str, Sequence[str]] = MappingProxyType({}),
    others: Mapping[tuple[str, str], Case] = MappingProxyType({}),
    borrowed: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Grid:
    """Every setting of these systems that may run on a case, with every value of the knobs.

    knobs: values by name, as in `Trial`; an empty one is not named. others: cases that a knob makes, each for the
    FASTEST settings of each system. borrowed: whether the trace is another model's.
    Raises BadInput if nothing can run.
    """
    refused = list[tuple[System, str]]()

    def wanted(case: Case) -> Iterator[System]:
        for system in systems:
            if reason := system.why_not(case):
                refused.append((system, reason))
                continue
            try:
                yield from _settings(system, case, objective)
            except BadInput as error:
                refused.append((system, str(error)))

    timed, before_s = dict[System, Compared](), dict[System, float]()

    def predict(wanted: Sequence[System], case: Case, timed: dict[System, Compared]) -> None:
        empty = replace(case, depth=0)
        for number, system in enumerate(wanted):
            if progress is not None:
                progress(number, len(wanted))
            one = predicted(workload, case, system, borrowed=borrowed, prompt_tokens=objective.prompt_tokens)
            if objective.seconds(one) is None:
                refused.append((system, one.why_not))
                continue
            timed[system] = one
            if case.depth and system not in before_s:
                filled = predicted(workload, empty, system, interval=False, prompt_tokens=case.depth)
                before_s[system] = case.depth / filled.prompt_tok_s if filled.prompt_tok_s else 0.0

    predict(list(wanted(case)), case, timed)
    if not timed:
        raise nothing_runs(case, refused)
    predict([one for one in _chosen_otherwise(timed, objective) if not one.why_not(case)], case, timed)
    trials = [Trial(system, of) for system in timed for of in _knobs(system, knobs)]
    on_others = dict[tuple[str, str], dict[System, Compared]]()
    for knob, other in others.items():
        found = dict[System, Compared]()
        predict(list(wanted(other)), other, found)
        on_others[knob] = {one: found[one] for kind in _kinds(found) for one in _fastest(kind, found, objective)}
        trials += [Trial(system, (*of, knob)) for system in on_others[knob] for of in _knobs(system, knobs)]
    return Grid(tuple(trials), timed, case, objective, before_s, on_others)


def predicted(workload: Workload, case: Case, system: System, **asked: Any) -> Compared:
    """The prediction of a setting; if its plan exceeds the memory by no more than a plan may be wrong, it is tight.

    asked: as for `at_setting`.
    """
    found = at_setting(workload, case, system, **asked)
    if found.tok_s is not None:
        return found
    with_room = at_setting(workload, with_more_memory(case), system, **asked)
    return found if with_room.tok_s is None else replace(with_room, tight=True)


def _kinds(timed: Mapping[System, Compared]) -> dict[type[System], None]:
    return dict.fromkeys(type(one) for one in timed)


def _fastest(kind: type[System], timed: Mapping[System, Compared], objective: Objective) -> list[System]:
    """The FASTEST settings of a system of those that surely have the memory, and of the others."""
    mine = sorted(
        (one for one in timed if type(one) is kind), key=lambda one: objective.seconds(timed[one]) or math.inf
    )
    return [one for tight in (False, True) for one in [one for one in mine if timed[one].tight == tight][:FASTEST]]


def _knobs(system: System, knobs: Mapping[str, Sequence[str]]) -> Iterator[tuple[tuple[str, str], ...]]:
    """Every combination of the knobs that a system has no setting for."""
    own = {name: values for name, values in knobs.items() if not hasattr(system, name)}
    for values in product(*own.values()):
        yield tuple((name, value) for name, value in zip(own, values, strict=True) if value)


def _chosen_otherwise(timed: Mapping[System, Compared], objective: Objective) -> Iterator[System]:
    """The FASTEST settings of each system with every other combination of the choices that it leaves open."""
    for kind in _kinds(timed):
        default = {item.name: item.default for item in fields(kind)}
        choices = {**kind.choices, **kind.run_choices}
        for one in _fastest(kind, timed, objective) if choices else ():
            open_ = {name: of for name, of in choices.items() if getattr(one, name) == default[name]}
            for values in product(*open_.values()):
                with suppress(BadInput):  # choices that exclude each other
                    if (other := replace(one, **dict(zip(open_, values, strict=True)))) not in timed:
                        yield other


def _settings(system: System, case: Case, objective: Objective) -> Iterator[System]:
    """A system at each of its sizes, mapped and not, with each micro-batch if the prompt counts, and each cut."""
    choices, with_room = dict(system.prompt_choices) if objective.prompt_tokens else {}, with_more_memory(case)
    if getattr(system, "mmap", None) == "":
        choices["mmap"] = ("yes", "no")
    for values in product(*choices.values()):
        one = replace(system, **dict(zip(choices, values, strict=True)))
        if one.size != LAYERS or one.size_given:
            sized = one.at_each_size(case)
        else:
            sized = [one.of_size(layers) for layers in _layers(min(one.sizes(case)), max(one.sizes(case)))]
            sized = [each for each in sized if _holds(each, with_room)]
        for each in sized:
            yield each
            yield from _cut_otherwise(each, case)


def _holds(system: System, case: Case) -> bool:
    try:
        system.check(case)
    except BadInput:
        return False
    return True


def _cut_otherwise(system: System, case: Case) -> Iterator[System]:
    """A system with each other cut between several GPUs that may hold."""
    if case.machine.gpus == 1 or not isinstance(system, PlacedLayers) or system.ts or system.fits_itself:
        return
    own = written(system.shares(case))
    for shares in dict.fromkeys(written(cut) for cut in system.cuts(case)):
        if shares != own and _holds(other := replace(system, ts=shares), case):
            yield other


def _layers(fewest: int, all_: int) -> list[int]:
    """Numbers of layers on the CPU around the fewest that the plan allows, and more and more of them."""
    found = list(range(max(fewest - BEYOND, 0), min(fewest + EACH, all_) + 1))
    while found[-1] < all_:
        found.append(min(max(found[-1] + 1, round(found[-1] * WIDER)), all_))
    return found
