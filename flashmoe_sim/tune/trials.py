"""Which setting of a real program to run next, and when the fastest one is known: each run is a line of the belief."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields
from functools import cached_property
from statistics import NormalDist, fmean
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.geometry.compute_buffers import MICRO_BATCH
from flashmoe_sim.machines.anchors import SPEED_SD
from flashmoe_sim.machines.belief import Draws, Whose, error_loads, normals
from flashmoe_sim.machines.estimates import estimate
from flashmoe_sim.systems.base import Case, System
from flashmoe_sim.systems.compare import NEAR, Compared
from flashmoe_sim.tune.objective import Objective

SURE = 0.95  # that nothing is more than NEAR faster: then it ends
JOINT = 4096  # draws from which that is read
MAY = 0.1  # that a setting is more than NEAR faster: less is not worth a look
TWICE = 2  # times that the best one ran before it is believed: a machine may have become slower meanwhile
APART, AGAIN = 2.0, 4  # times what repeats say that runs may be off what is believed; and how often that is asked
SPILLED = 4.0  # standard deviations slower than others say: then a run lacked memory
NOTICED = 0.004  # of a speed: a run that is expected to gain less is not made
RUN_SD = estimate("trials.run_sd").value
ALIKE, APART_SD = estimate("trials.alike").value, estimate("trials.apart_sd").value
LAYERS = "cpu_layers"
THREADS, UBATCH = "threads", "ubatch"

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Trial:
    """A setting to run. knobs: what no system has as a setting, such as threads, by the engine's names."""

    system: System
    knobs: tuple[tuple[str, str], ...] = ()

    @property
    def spec(self) -> str:
        """The system's, with the knobs after it."""
        return " ".join([self.system.spec, *(f"{name}={value}" for name, value in self.knobs)])


class Outcome(NamedTuple):
    """What a run gave.

    seconds: of a token or, if the objective has a prompt, of it all; None if it failed. sd: of its logarithm, as the
    program's own repeats say. wall_s: how long the run took; load_s: the part of it that was not timed. failed: why it
    did. lacks: the memory that was too small, `gpu` or `ram`; empty if none was. disturbed: whether other programs ran
    meanwhile.
    """

    seconds: float | None
    sd: float = 0.0
    wall_s: float = 0.0
    failed: str = ""
    lacks: str = ""
    load_s: float = 0.0
    disturbed: bool = False


@dataclass(frozen=True, eq=False)
class Prospects:
    """Logarithms of the speeds of settings, as jointly normal.

    mean: f64 [settings]. covariance: f64 [settings, settings].
    """

    mean: Vector
    covariance: Vector

    def of(self, places: Sequence[int]) -> Prospects:
        """Of some settings only."""
        return Prospects(self.mean[places], self.covariance[np.ix_(places, places)])

    def after(self, place: int, log_speed: float, sd: float) -> Prospects:
        """With a measurement of one of them. sd: of its logarithm.

        Source: conditioning of a joint normal distribution (Rasmussen and Williams 2006, appendix A.2).
        """
        row = self.covariance[place]
        gain = row / (row[place] + sd * sd)
        return Prospects(self.mean + gain * (log_speed - self.mean[place]), self.covariance - np.outer(gain, row))

    def worth(self, sd: float, ran: Sequence[int] = ()) -> Vector:
        """How much faster the choice is expected to be after a run of each: f64 [settings], of the logarithm.

        sd: of a run's logarithm. ran: those that ran, of which one is chosen. Source: the knowledge gradient for
        correlated normal beliefs (Frazier, Powell and Dayanik 2009, INFORMS Journal on Computing 21, 4), where
        everything may be chosen; what did not run may not be here, so that a run of what seems fastest is worth its
        lead. The mean is over the strata of `machines.belief` where they integrate exactly.
        """
        steps = self.covariance / np.sqrt(np.diagonal(self.covariance) + sd * sd)
        z, everything, best = normals("a run"), range(len(self.mean)), []
        for place, step in enumerate(steps.T):
            chosen = [*{*ran, place}] if ran else everything
            best.append(float((self.mean[chosen, None] + step[chosen, None] * z).max(axis=0).mean()))
        return np.array(best) - float(self.mean[[*ran] or everything].max())

    def may_be_faster(self, place: int) -> NDArray[np.bool_]:
        """Which ones are more than NEAR faster than this one with a probability of MAY: bool [settings]."""
        variance = np.diagonal(self.covariance) + self.covariance[place, place] - 2 * self.covariance[place]
        ahead = self.mean - self.mean[place] + math.log1p(-NEAR)
        return np.asarray(ahead > NormalDist().inv_cdf(MAY) * np.sqrt(np.maximum(variance, 0.0)))

    def sure(self, place: int) -> float:
        """The probability that nothing is more than NEAR faster than this one."""
        values, vectors = np.linalg.eigh(self.covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        logs = self.mean[:, None] + root @ np.random.default_rng(0).standard_normal((len(values), JOINT))
        return float(np.mean(logs.max(axis=0) - logs[place] <= -math.log1p(-NEAR)))


@dataclass(eq=False)
class Search:
    """The search for the fastest of `trials`, which are not all tried: what was tried, and what that says of the rest.

    tight: of each, whether its plan may exceed the GPU's memory. full: whether it leaves little of it. kept_bytes: by
        memory, what each keeps there.
    ran: places and outcomes, in order.
    """

    trials: Sequence[Trial]
    prior: Prospects
    tight: Sequence[bool]
    full: Sequence[bool]
    kept_bytes: Mapping[str, Sequence[int]]
    ran: list[tuple[int, Outcome]] = field(default_factory=list)

    def hear(self, place: int, outcome: Outcome) -> None:
        """Take a run into account."""
        self.ran.append((place, outcome))
        for name in ("now", "spilled", "failed", "worth"):
            self.__dict__.pop(name, None)

    @property
    def repeat_sd(self) -> float | None:
        """By how much runs of one setting differed: the standard deviation of the logarithm; None if none ran twice."""
        squares, again = self._repeats
        return math.sqrt(squares / again) if again else None

    @property
    def _repeats(self) -> tuple[float, int]:
        """The squares of how far runs were from the mean of their setting, and how many there were beside a first."""
        logs = [[math.log(run.seconds) for run in runs if run.seconds] for runs in self.by_place.values()]
        return sum((one - fmean(of)) ** 2 for of in logs for one in of), sum(len(of) - 1 for of in logs if of)

    @property
    def run_sd(self) -> float:
        """By how much runs of one setting may differ: RUN_SD, or more if repeats say so.

        Of disturbed runs there is a guess, which counts as one repeat.
        """
        squares, again = self._repeats
        if any(outcome.disturbed for _, outcome in self.ran):
            squares, again = squares + estimate("trials.disturbed_sd").value ** 2, again + 1
        return max(RUN_SD, math.sqrt(squares / again)) if again else RUN_SD

    @property
    def by_place(self) -> dict[int, list[Outcome]]:
        """The runs of each setting that ran."""
        found = defaultdict[int, list[Outcome]](list)
        for place, outcome in self.ran:
            found[place].append(outcome)
        return found

    @cached_property
    def now(self) -> Prospects:
        """What is believed after the runs.

        Where they contradict each other, as if the machine had become slower meanwhile, they differ by more than the
        repeats say.
        """
        places, run_sd = self._timed - self.spilled, self.run_sd
        for _ in range(AGAIN):
            found = self._after(places, run_sd)
            off = [
                math.log(run.seconds) + found.mean[place] for place, run in self.ran if place in places and run.seconds
            ]
            if not off or (apart := math.sqrt(fmean(one * one for one in off))) <= APART * run_sd:
                break
            run_sd = apart
        return found

    def _after(self, places: Set[int], run_sd: float) -> Prospects:
        """What is believed after the runs of these. run_sd: by how much runs of one setting differ."""
        found = self.prior
        for place, outcome in self.ran:
            if place in places and outcome.seconds is not None:
                found = found.after(place, -math.log(outcome.seconds), math.hypot(run_sd, outcome.sd))
        return found

    @property
    def _timed(self) -> set[int]:
        return {place for place, outcome in self.ran if outcome.seconds is not None}

    @cached_property
    def spilled(self) -> set[int]:
        """Those of `full` that are SPILLED standard deviations slower than what keeps less GPU memory says of them.

        Some drivers do not stop when the memory is full, and move what does not fit to RAM.
        """
        kept, found = self.kept_bytes["gpu"], set[int]()
        for place in filter(self.full.__getitem__, self._timed):
            if less := {other for other in self._timed if kept[other] < kept[place]}:
                said = self._after(less, self.run_sd)
                sd = math.hypot(math.sqrt(said.covariance[place, place]), self.run_sd)
                seconds = min(run.seconds for run in self.by_place[place] if run.seconds)
                if -math.log(seconds) < said.mean[place] - SPILLED * sd:
                    found.add(place)
        return found

    @property
    def best(self) -> int | None:
        """Of those that ran, the one that is likely the fastest; None if none did."""
        ran = self._timed - self.failed
        return max(ran, key=lambda place: self.now.mean[place], default=None)

    @cached_property
    def failed(self) -> set[int]:
        """Those that failed, and those that need as much of a memory as one for which it was too small."""
        found = {place for place, outcome in self.ran if outcome.seconds is None}
        for where, kept in self.kept_bytes.items():
            lacked = set(self.spilled) if where == "gpu" else set()
            lacked |= {place for place, outcome in self.ran if outcome.lacks == where}
            lacking = min((kept[place] for place in lacked), default=math.inf)
            found |= {place for place, size in enumerate(kept) if size >= lacking}
        return found

    @property
    def sure(self) -> float:
        """The probability that nothing that may run is more than NEAR faster than `best`; 0 if that ran only once."""
        if self.best is None or len(self.by_place[self.best]) < TWICE:
            return 0.0
        left = sorted(set(range(len(self.trials))) - self.failed)
        return self.now.of(left).sure(left.index(self.best))

    @property
    def is_even(self) -> bool:
        """Whether `best` ran TWICE, and no run of anything is expected to find what is noticeably faster."""
        if self.best is None or len(self.by_place[self.best]) < TWICE:
            return False
        return max(self.worth.values()) < NOTICED

    @cached_property
    def worth(self) -> dict[int, float]:
        """What a run of each setting is worth, of those that may run next; see `Prospects.worth`."""
        places = [place for place in range(len(self.trials)) if place not in self.failed and self._is_safe(place)]
        ran = [place for place, number in enumerate(places) if number in self._timed]
        return dict(zip(places, self.now.of(places).worth(self.run_sd, ran).tolist(), strict=True)) if places else {}

    def next(self, minutes: Callable[[int], float]) -> int | None:
        """The run that is worth most for its time; None if nothing is left that may run. minutes: that one takes.

        The first is the one that is predicted to be the fastest. What may exceed the memory is tried only after
        everything that keeps less of it ran. Once nothing new is worth a run, the best one is repeated.
        """
        if not self.worth:
            return None
        if self.best is None:
            return max(self.worth, key=lambda place: self.now.mean[place])
        if len(self.by_place[self.best]) < TWICE:
            places = [*self.worth]
            known = self.now.of(places).sure(places.index(self.best))
            if max(self.worth.values()) < NOTICED or known >= SURE:
                return self.best
        return max(self.worth, key=lambda place: self.worth[place] / minutes(place))

    def _is_safe(self, place: int) -> bool:
        """Whether it surely has the memory, or everything ran that may lack some and keeps less, and something else."""
        if not self.tight[place]:
            return True
        ran, kept = self._timed, self.kept_bytes["gpu"]
        less = [number for number, size in enumerate(kept) if self.tight[number] and size < kept[place]]
        return (bool(ran) or all(self.tight)) and ran.issuperset(less)


def prospects(trials: Sequence[Trial], found: Sequence[Compared], case: Case, objective: Objective) -> Prospects:
    """What is believed of settings before any of them ran.

    found: of each trial, its system with its draws. The draws have in common what the machine, the engine and the model
    explain. All settings of a system also have in common what is left of its error, but for APART_SD, in which only
    sizes near each other are alike: a search among them needs that, and answers about one do not. Of knobs, and of the
    choices of a system, there are only broad guesses: threads help up to the number of cores, as far as the CPU's share
    of the time goes.
    """
    own = [_own(one.system.whose(case.model.base_name), case) for one in trials]
    logs = [_logs(one, objective) - each.draws for one, each in zip(found, own, strict=True)]
    covariance = np.atleast_2d(np.cov(np.array(logs)))
    mean = np.array([-math.log(objective.seconds(one) or math.inf) for one in found])
    numbers = [_numbers(one, each, case, objective) for one, each in zip(trials, found, strict=True)]
    for name in {name for of in numbers for name in of}:
        each = [of.get(name, _Number(0.0, 0.0, 0.0, 0.0)) for of in numbers]
        mean += [one.gained for one in each]
        covariance += _common(each)
    for word in {word for one in trials for word in _words(one)}:
        has = np.array([word in _words(one) for one in trials], float)
        covariance += _of_knob(*word) ** 2 * np.outer(has, has)
    covariance += _own_common(trials, [one.load for one in own], len(case.model.layers))
    return Prospects(mean, covariance)


def _own_common(trials: Sequence[Trial], loads: Sequence[float], layers: int) -> Vector:
    """The covariance of what is left of the error of a system: f64 [trials, trials]."""
    systems = list(dict.fromkeys(one.system for one in trials))
    places = [systems.index(one.system) for one in trials]
    load = dict(zip(places, loads, strict=True))
    found = np.zeros((len(systems), len(systems)))
    for i, one in enumerate(systems):
        for j, other in enumerate(systems):
            if type(one) is type(other):
                apart = min(APART_SD, load[i], load[j]) ** 2
                found[i, j] = load[i] * load[j] - apart * (1 - _alike(one, other, layers))
    return found[np.ix_(places, places)]


def _words(trial: Trial) -> set[tuple[str, str]]:
    """Its knobs, and the choices that its system makes otherwise than it would by itself; like knobs, they add up."""
    system = trial.system
    default = {item.name: item.default for item in fields(system)}
    made = {name: getattr(system, name) for name in system.choices}
    return {*trial.knobs, *((name, str(value)) for name, value in made.items() if value != default[name])}


class _Own(NamedTuple):
    """What of a setting's error no other setting has, in the belief: its standard deviation, and its draws with those
    of the chance of a run."""

    load: float
    draws: Draws


def _own(whose: Whose, case: Case) -> _Own:
    learnt = case.machine.learnt
    name, load = next(
        ((name, load) for name, load in error_loads(case.machine, whose).items() if name.startswith("setting ")),
        ("", 0.0),
    )
    if learnt is not None and name in learnt.place:
        load = 0.0
    return _Own(load, load * normals(name) + SPEED_SD * normals(f"run {whose.setting}"))


def _logs(found: Compared, objective: Objective) -> Draws:
    return -np.log(objective.draws_s(found))


def _alike(one: System, other: System, layers: int) -> float:
    """How much of what is apart in the errors of two settings of a system is alike: sizes near each other are.

    What its choices do is counted beside it.
    """
    names = [item.name for item in fields(one) if item.name not in one.choices]
    differ = [name for name in names if getattr(one, name) != getattr(other, name)]
    if differ != [LAYERS]:
        return float(not differ)
    mine, theirs = getattr(one, LAYERS), getattr(other, LAYERS)
    if mine is None or theirs is None:
        return 0.0
    gap = abs(mine - theirs) / layers
    return math.exp(-0.5 * (gap / ALIKE) ** 2)


class _Number(NamedTuple):
    """A knob that is a number: octaves from its usual value, the share of the time that it changes, and its estimates.

    gains: what each doubling or halving adds to the logarithm of the speed of that share; sd: of it.
    """

    octaves: float
    share: float
    gains: float
    sd: float

    @property
    def gained(self) -> float:
        return self.share * self.gains * abs(self.octaves)


def _common(numbers: Sequence[_Number]) -> Vector:
    """The covariance of what values of a knob do: they share their way from the usual one. f64 [values, values]."""
    octaves = np.array([one.octaves for one in numbers])
    sd = np.array([one.share * one.sd for one in numbers])
    way = np.minimum.outer(np.abs(octaves), np.abs(octaves)) * (np.multiply.outer(octaves, octaves) > 0)
    return np.asarray(np.outer(sd, sd) * way)


def _numbers(trial: Trial, found: Compared, case: Case, objective: Objective) -> dict[str, _Number]:
    """The knobs of a setting that are numbers: threads, usually the CPU's cores, and micro-batches."""
    threads = "trials.threads" if objective.goal == "decode" else "trials.threads_of_prompts"
    usual = {
        THREADS: (case.machine.cpu_cores, _cpu_share(found), threads),
        UBATCH: (MICRO_BATCH, _prompt_share(found, objective), "trials.ubatch"),
    }
    numbers = {}
    for name, value in trial.knobs:
        if name in usual and usual[name][0] and value.isdecimal():
            base, share, of = usual[name]
            octaves = math.log2(int(value) / base)
            side = "fewer" if octaves < 0 else "more"
            numbers[name] = _Number(octaves, share, estimate(of, side).value, estimate(of, f"{side}_sd").value)
    return numbers


def _cpu_share(found: Compared) -> float:
    """The share of a token's time in which the CPU computes."""
    spent = found.ms_per_token or {}
    busy = spent.get("cpu", 0.0) + (0.0 if found.gpu_bytes else spent.get("compute", 0.0))
    return busy / (sum(spent.values()) or 1.0)


def _prompt_share(found: Compared, objective: Objective) -> float:
    """The share of the objective's time that is the prompt's."""
    if objective.goal == "decode" or not found.prompt_tok_s:
        return 0.0
    return objective.prompt_tokens / found.prompt_tok_s / (objective.seconds(found) or math.inf)


def _of_knob(name: str, value: str) -> float:
    """The standard deviation of what a knob that is no number may do, beside its first value."""
    return 0.0 if name in (THREADS, UBATCH) or value in ("", "yes") else estimate("trials.knob_sd", name).value
