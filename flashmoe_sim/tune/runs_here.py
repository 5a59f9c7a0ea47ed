"""What a machine runs: every known model, in the largest usual file with which it is fast enough."""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.geometry.named import file_bytes, named_model, named_models, quantizations
from flashmoe_sim.geometry.recordings import find_shape
from flashmoe_sim.io.errors import BadInput, TooLarge
from flashmoe_sim.io.sizes import size
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.schema import RUNS_HERE
from flashmoe_sim.systems.base import Case, System
from flashmoe_sim.systems.borrow import borrow, bundled
from flashmoe_sim.systems.compare import Compared, Replays, at_setting
from flashmoe_sim.systems.fits import why_none_fits
from flashmoe_sim.trace.routing import RoutingTrace
from flashmoe_sim.trace.synth import synthesize
from flashmoe_sim.tune.change import TRIED_REFS, at_own_size
from flashmoe_sim.tune.objective import Objective
from flashmoe_sim.tune.proof import first, pick
from flashmoe_sim.tune.search import WORTH, stretch

# Files that people download, beside a model's default one. Smaller ones change the text more, larger ones hardly less.
USUAL = ("q8_0", "q6_k", "q5_k_m", "ud-q4_k_xl", "q4_k_m", "q3_k_m", "ud-q2_k_xl", "q2_k")
GOOD_TOK_S = 10.0
SLOWEST_TOK_S = 1.0  # what is slower does not run
MUCH_SLOWER = 0.9  # of the speed of a larger cache
LIKELY = 2 / 3  # share of the draws
PLAIN_TOKENS = 32
WORKERS = 2  # more would wait for the interpreter
SWITCH_S = 0.05  # between threads: at Python's own 5 ms they take 7% longer
# How many times as fast a model that is read from storage may be as with experts that are all equally likely: at most
# 7.7 times, of 22 models on a PC with 32 GiB.
MORE_LIKELY = 10.0
OF_STRETCH = (
    3.0  # how many times as fast it may be on the whole trace as on a stretch of it, which begins with nothing read
)
WELL, SLOW, NO = "well", "slowly", "no"
NOTHING = "no engine that anybody can install loads it"
TOO_SLOW = "reads experts from storage for every token, which takes more than a second"


@dataclass(frozen=True, eq=False)
class RunsHere:
    """A model on the machine.

    model: in the file. weights_b, active_b: billions of all weights, and of the weights that a token uses. found: what
    `sim recommend` names first for this file, with its interval, unless a fork is faster; if nothing runs, one of the
    systems and why not.
    likely: share of the draws in which it reaches the speed. how: one of WELL, SLOW, NO.
    """

    model: ModelGeometry
    weights_b: float
    active_b: float
    found: Compared
    likely: float
    how: str

    def as_row(self) -> dict[str, Any]:
        """schema.RUNS_HERE, and more of schema.COMPARED."""
        return {
            **self.found.as_row(),
            "model": self.model.name,
            "quantization": self.model.quant,
            "file_bytes": file_bytes(self.model),
            "weights_b": self.weights_b,
            "active_b": self.active_b,
            "runs": self.how,
            "likely": self.likely,
        }


@dataclass(frozen=True, eq=False)
class WhatRuns:
    """Every model on a machine: those that run well, slowly and not at all, in each group the most weights first.

    at_least_tok_s: the speed that those that run well likely reach.
    """

    at_least_tok_s: float
    models: tuple[RunsHere, ...]

    def rows(self) -> list[dict[str, Any]]:
        """schema.RUNS_HERE."""
        names = [column.name for column in RUNS_HERE]
        return [{name: row[name] for name in names} for row in (one.as_row() for one in self.models)]

    def of(self, how: str) -> list[RunsHere]:
        """The models of WELL, SLOW or NO."""
        return [one for one in self.models if one.how == how]


def what_runs(
    case_of: Callable[[ModelGeometry], Case],
    systems: Sequence[System],
    *,
    at_least_tok_s: float = GOOD_TOK_S,
    names: Iterable[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> WhatRuns:
    """Each named model on one machine, in the largest usual file that likely reaches a speed, else in its smallest.

    It takes the engines that anybody can install, or if none of the systems is of one, all systems.
    case_of: the case of a file on the machine. names: of the models; by default all.
    Raises BadInput if no model has a case, and if none runs.
    """
    names = list(named_models()) if names is None else list(names)
    asked, found, refused = _Asked(case_of, systems, at_least_tok_s), list[RunsHere](), list[BadInput]()

    def answer(name: str) -> RunsHere | BadInput:
        try:
            return asked.of(name)
        except BadInput as error:
            return error

    with _seldom_switched(), ThreadPoolExecutor(WORKERS) as pool:
        for number, (name, one) in enumerate(zip(names, pool.map(answer, names), strict=True)):
            if progress is not None:
                progress(number, len(names))
            if isinstance(one, BadInput):
                refused.append(one)
                found.append(asked.row(named_model(name), Compared.refused(systems[0], one)))
            else:
                found.append(one)
    if len(refused) == len(names):
        raise refused[0]
    groups = (WELL, SLOW, NO)
    order = sorted(found, key=lambda one: (groups.index(one.how), -one.weights_b, -one.active_b, one.model.name))
    runs = WhatRuns(at_least_tok_s, tuple(order))
    if not runs.of(WELL) and not runs.of(SLOW):
        least = min((usual_files(name)[-1] for name in names), key=file_bytes)
        raise TooLarge(
            f"none of {len(names)} models reaches {SLOWEST_TOK_S:g} tok/s there; the smallest file is {least.name}, "
            f"{size(file_bytes(least))}",
            advice="give a machine with more memory than that beside the system's",
        )
    return runs


@contextmanager
def _seldom_switched() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def usual_files(name: str) -> list[ModelGeometry]:
    """A model's GGUF files of USUAL and its default one, the largest first; the default one alone if that is no GGUF
    and there are none."""
    default = named_model(name)
    others = USUAL if default.quant in USUAL else ()  # else its own four bits, of which recipes make nothing smaller
    known = quantizations(default, others, only=(*USUAL, default.quant))
    return [one for one in known if one.format == "gguf"] or [default]


class _Tried(NamedTuple):
    """A file on the machine. plain: a trace in which all experts are equally likely. replays: of that trace."""

    case: Case
    plain: Workload
    replays: Replays


@dataclass(frozen=True)
class _Asked:
    """A question about any model."""

    case_of: Callable[[ModelGeometry], Case]
    systems: Sequence[System]
    at_least_tok_s: float

    @property
    def slowest_tok_s(self) -> float:
        """What is slower need not be timed exactly."""
        return min(SLOWEST_TOK_S, self.at_least_tok_s)

    def of(self, name: str) -> RunsHere:
        """The model in the largest file that reaches the speed, else in its smallest one."""
        files = usual_files(name)
        plain, known = prepare(_equally_likely(files[0]), files[0]), dict[str, _Tried]()

        def tried(file: ModelGeometry) -> _Tried:
            if file.name not in known:
                known[file.name] = _Tried(self.case_of(file), plain.of_file(file), {})
            return known[file.name]

        def reaches(file: ModelGeometry) -> bool:
            """Whether systems that choose no experts do; a smaller file reaches what a larger one does."""
            return self._reaches(tried(file))

        for file in files[bisect_left(files, True, hi=len(files) - 1, key=reaches) :]:
            answer = self._answer(tried(file))
            if answer.how == WELL:
                break
        return answer

    def _reaches(self, tried: _Tried) -> bool:
        """Whether the fastest of the systems that choose no experts reaches the speed; the others need not be timed."""
        found = []
        for one in self._placed(tried):
            if not one.tight and (one.tok_s or 0.0) >= self.at_least_tok_s:
                return True
            found.append(one)
        return (self._fastest(found).tok_s or 0.0) >= self.at_least_tok_s

    def _placed(self, tried: _Tried) -> Iterator[Compared]:
        """Systems that choose no experts, each at the size of its own rule and without its interval."""
        systems = [one for one in _at_hand(self.systems, tried.case) if not one.caches]
        return _at_own_sizes(tried.plain, tried.case, systems, tried.replays)

    def _fastest(self, found: Sequence[Compared]) -> Compared:
        """The fastest that is not tight, if any is not."""
        ran = [one for one in found if not one.tight] or found
        return max(ran, key=lambda one: one.tok_s or 0.0) if ran else Compared(self.systems[0], NOTHING)

    def _answer(self, tried: _Tried) -> RunsHere:
        """What an answer names first, from a trace only if experts that are used more often than others matter.

        They do to caches and to what is read from storage.
        """
        case, plain, placed = tried.case, tried.plain, list(self._placed(tried))
        best = self._fastest(placed)
        systems, reads = _at_hand(self.systems, case), _reads(best)
        if reads and (best.tok_s or 0.0) * MORE_LIKELY < self.slowest_tok_s:
            return self._too_slow(case, best)
        caches = [one for one in systems if one.caches and not why_none_fits(case, one)] if best.mapped_bytes else []
        workload, borrowed = plain, False
        if reads or caches:
            own = bundled(case.model)
            (workload, _), borrowed = own or borrow(case.model), own is None
        part = stretch(workload, TRIED_REFS)
        found = list(_at_own_sizes(part, case, [one for one in systems if not one.caches])) if reads else placed
        found += [_at_best_size(part, case, one) for one in caches]
        most = max((one.tok_s or 0.0 for one in found), default=0.0)
        if most * OF_STRETCH < self.slowest_tok_s:
            return self._too_slow(case, best)
        placed_tok_s = max((one.tok_s or 0.0 for one in found if not one.system.caches), default=0.0)
        least = {False: WORTH * placed_tok_s, True: placed_tok_s}  # a cache that is slower is not named first
        near = [one for one in found if one.tok_s is not None and one.tok_s >= least[one.system.caches]]
        sure = []
        for one in near:
            on, replays = (workload, None) if one.system.caches or _reads(one) else (plain, tried.replays)
            sure.append(at_setting(on, case, one.system, borrowed=borrowed, replays=replays))
        return self.row(case.model, first(sure, case, Objective()) or best)

    def _too_slow(self, case: Case, found: Compared) -> RunsHere:
        return self.row(case.model, replace(found, tok_s=None, why_not=found.why_not or TOO_SLOW))

    def row(self, model: ModelGeometry, found: Compared) -> RunsHere:
        """A model's answer."""
        entry, likely = named_models()[model.name.partition(":")[0]], 0.0
        if found.tok_s is not None and found.draws is not None:
            likely = float(np.mean(found.draws >= self.at_least_tok_s))
        routed, others = entry.routed_params_b, entry.dense_params_b
        return RunsHere(
            model,
            routed + others + entry.table_params_b,
            routed * entry.top_k / entry.experts + others,
            found,
            likely,
            WELL if likely >= LIKELY else SLOW if (found.tok_s or 0.0) >= SLOWEST_TOK_S else NO,
        )


def _reads(found: Compared) -> bool:
    """Whether it reads experts from storage, or is not known to run."""
    return found.tok_s is None or (found.ms_per_token or {}).get("read", 0.0) > 0


def _at_hand(systems: Sequence[System], case: Case) -> list[System]:
    """Those of the systems that anybody can install and that may run, or all that may, if anybody can install none."""
    common = [one for one in systems if one.common] or systems
    return [one for one in common if not one.changes_text(case) and not one.why_not(case)]


def _at_own_sizes(
    workload: Workload, case: Case, systems: Iterable[System], replays: Replays | None = None
) -> Iterator[Compared]:
    """Each system at the size of its own rule, without its interval; without those behind another one that runs.

    replays: of the workload; new ones are added.
    """
    ran = set[str]()
    for system in systems:
        if system.behind in ran:
            continue
        found = at_own_size(workload, case, system, replays=replays)
        if found.tok_s is not None:
            ran.add(system.name)
        yield found


def _at_best_size(workload: Workload, case: Case, system: System) -> Compared:
    """The system at its best size, without its interval: from the largest size down to one that is much slower."""
    tried, fastest_tok_s = list[Compared](), 0.0
    for one in reversed(system.at_each_size(case)):
        tried.insert(0, at_setting(workload, case, one, interval=False))
        tok_s = None if tried[0].tight else tried[0].tok_s
        if tok_s is not None and tok_s < MUCH_SLOWER * fastest_tok_s:
            break
        fastest_tok_s = max(fastest_tok_s, tok_s or 0.0)
    return pick(tried, Objective()) or tried[0]


def _equally_likely(model: ModelGeometry) -> RoutingTrace:
    """A short trace in which all experts are equally likely."""
    return synthesize(null="uniform", shape=find_shape(model), tokens=PLAIN_TOKENS)[0]
