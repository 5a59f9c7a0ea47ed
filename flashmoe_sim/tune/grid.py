"""The settings of a program that a search by real runs chooses among, with their predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from itertools import product
from types import MappingProxyType

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.systems.base import Case, System
from flashmoe_sim.systems.compare import Compared, at_setting
from flashmoe_sim.systems.fits import nothing_runs
from flashmoe_sim.tune.objective import Objective
from flashmoe_sim.tune.trials import LAYERS, Search, Trial, prospects

BEYOND = 3  # fewer layers on the CPU than the plan says: it may be wrong
EACH, WIDER = 4, 1.25  # so many numbers of layers are tried one by one, and then every so many times as many
FASTEST = 2  # settings of a system that are tried with its other choices


@dataclass(frozen=True, eq=False)
class Grid:
    """The settings, with the prediction of each system.

    before_s: seconds of each system to fill the context up to the depth; none at depth 0.
    """

    trials: tuple[Trial, ...]
    timed: dict[System, Compared]
    case: Case
    objective: Objective
    before_s: Mapping[System, float]

    def predicted(self, place: int) -> Compared:
        """The prediction of a setting, without its knobs."""
        return self.timed[self.trials[place].system]

    def search(self) -> Search:
        """A search among them, before any ran."""
        found = [self.timed[one.system] for one in self.trials]
        prior = prospects(self.trials, self.timed, self.case, self.objective)
        kept = {"gpu": [one.gpu_bytes or 0 for one in found], "ram": [one.ram_bytes or 0 for one in found]}
        return Search(self.trials, prior, [one.tight for one in found], kept)


def grid(
    workload: Workload,
    case: Case,
    systems: Sequence[System],
    objective: Objective,
    *,
    knobs: Mapping[str, Sequence[str]] = MappingProxyType({}),
    borrowed: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Grid:
    """Every setting of these systems that may run on a case and keeps the text, with every value of the knobs.

    knobs: values by name, as in `Trial`. borrowed: whether the trace is another model's.
    Raises BadInput if nothing can run.
    """
    wanted = list[System]()
    refused = list[tuple[System, str]]()
    for system in systems:
        reason = system.why_not(case) or system.changes_text(case)
        if reason:
            refused.append((system, reason))
            continue
        try:
            wanted += _settings(system, case, objective)
        except BadInput as error:
            refused.append((system, str(error)))
    timed, before_s = dict[System, Compared](), dict[System, float]()
    empty = replace(case, depth=0)

    def predict(wanted: Sequence[System]) -> None:
        for number, system in enumerate(wanted):
            if progress is not None:
                progress(number, len(wanted))
            one = at_setting(workload, case, system, borrowed=borrowed, prompt_tokens=objective.prompt_tokens)
            if objective.seconds(one) is None:
                refused.append((system, one.why_not))
                continue
            timed[system] = one
            if case.depth:
                filled = at_setting(workload, empty, system, interval=False, prompt_tokens=case.depth)
                before_s[system] = case.depth / filled.prompt_tok_s if filled.prompt_tok_s else 0.0

    predict(wanted)
    if not timed:
        raise nothing_runs(case, refused)
    predict([one for one in _chosen_otherwise(timed, objective) if not one.why_not(case)])
    trials = [Trial(system, of) for system in timed for of in _knobs(system, knobs)]
    return Grid(tuple(trials), timed, case, objective, before_s)


def _knobs(system: System, knobs: Mapping[str, Sequence[str]]) -> Iterator[tuple[tuple[str, str], ...]]:
    """Every combination of the knobs that a system has no setting for."""
    own = {name: values for name, values in knobs.items() if not hasattr(system, name)}
    for values in product(*own.values()):
        yield tuple(zip(own, values, strict=True))


def _chosen_otherwise(timed: Mapping[System, Compared], objective: Objective) -> Iterator[System]:
    """The FASTEST settings of each system with every other combination of the choices that it leaves open."""
    for kind in {type(one): None for one in timed if one.choices}:
        mine = sorted((one for one in timed if type(one) is kind), key=lambda one: objective.seconds(timed[one]) or 0.0)
        default = {item.name: item.default for item in fields(kind)}
        for one in mine[:FASTEST]:
            open_ = {name: of for name, of in kind.choices.items() if getattr(one, name) == default[name]}
            for values in product(*open_.values()):
                with suppress(BadInput):  # choices that exclude each other
                    if (other := replace(one, **dict(zip(open_, values, strict=True)))) not in timed:
                        yield other


def _settings(system: System, case: Case, objective: Objective) -> Iterator[System]:
    """A system at each of its sizes, mapped and not, and with each micro-batch if the prompt counts."""
    choices = dict(system.prompt_choices) if objective.prompt_tokens else {}
    if getattr(system, "mmap", None) == "":
        choices["mmap"] = ("yes", "no")
    for values in product(*choices.values()):
        one = replace(system, **dict(zip(choices, values, strict=True)))
        if one.size != LAYERS or one.size_given:
            yield from one.at_each_size(case)
            continue
        for layers in _layers(min(one.sizes(case)), max(one.sizes(case))):
            sized = one.of_size(layers)
            try:
                sized.check(case)
            except BadInput:
                continue
            yield sized


def _layers(fewest: int, all_: int) -> list[int]:
    """Numbers of layers on the CPU around the fewest that the plan allows, and more and more of them."""
    found = list(range(max(fewest - BEYOND, 0), min(fewest + EACH, all_) + 1))
    while found[-1] < all_:
        found.append(min(max(found[-1] + 1, round(found[-1] * WIDER)), all_))
    return found
