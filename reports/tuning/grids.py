"""Published grids as the engine of a search: each run is a row of the table."""

from __future__ import annotations

import math
import random
from collections.abc import Set
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import polars as pl

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.options import MemoryOptions
from flashmoe_sim.systems.base import System
from flashmoe_sim.systems.compare import NEAR, Compared
from flashmoe_sim.systems.resolve import Resolved, resolve
from flashmoe_sim.systems.table import parse_system
from flashmoe_sim.tune.grid import Grid, predicted
from flashmoe_sim.tune.objective import Objective
from flashmoe_sim.tune.trials import SURE, THREADS, UBATCH, Outcome, Trial

TABLE = Path(__file__).parents[2] / "data" / "published" / "grids.csv"
FEWEST = 5  # settings of a grid
SEEDS, ASKED = 10, 3  # searches that draw at random


@dataclass(frozen=True, eq=False)
class PublishedGrid:
    """A grid whose settings can be asked. outcomes: of each trial. left_out: rows that no system can be asked of."""

    name: str
    who: str
    source: str
    grid: Grid
    outcomes: tuple[Outcome, ...]
    left_out: int

    @property
    def good(self) -> frozenset[int]:
        """The settings within NEAR of the fastest."""
        seconds = [one.seconds or math.inf for one in self.outcomes]
        return frozenset(place for place, one in enumerate(seconds) if one * (1 - NEAR) <= min(seconds))

    @property
    def is_known(self) -> bool:
        """Whether its settings differ only in what `sim tune` tries and the program has a prediction or a guess of."""
        knobs = [dict(one.knobs) for one in self.grid.trials]
        differ = {name for each in knobs for name in each if len({str(one.get(name)) for one in knobs}) > 1}
        return differ <= {THREADS, UBATCH, "mmap", "numa"}

    def runs(self) -> tuple[float, bool]:
        """The runs of our search until one of `good` ran, and whether it ended before.

        A setting that ran before is no run; after an early end the rest is drawn at random.
        """
        search, ran = self.grid.search(), set[int]()
        while search.sure < SURE and not search.is_even and len(search.ran) < ASKED * len(self.outcomes):
            place = search.next(lambda _: 1.0)
            if place is None:
                break
            search.hear(place, self.outcomes[place])
            ran.add(place)
            if place in self.good:
                return len(ran), False
        return self._at_random_after(ran), True

    def _at_random_after(self, ran: Set[int]) -> float:
        """The runs with the settings left in a random order, in the mean."""
        return len(ran) + (len(self.outcomes) - len(ran) + 1) / (len(self.good) + 1)

    def in_order(self) -> int:
        """The runs in the order of the table."""
        return min(self.good) + 1

    def at_random(self) -> float:
        """The runs in a random order, in the mean."""
        return self._at_random_after(set())

    def by_tpe(self) -> float:
        """The runs of Optuna's TPE with its own choices, in the mean of SEEDS.

        A setting that ran before is no run; what is not found in ASKED times as many suggestions as there are settings
        counts as if the rest were drawn at random.
        """
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        counts = []
        for seed in range(SEEDS):
            study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=3))
            ran: set[int] = set()
            for asked in range(ASKED * len(self.outcomes)):
                trial = study.ask()
                place = self._suggested(trial, random.Random(asked))
                ran.add(place)
                if place in self.good:
                    break
                seconds = self.outcomes[place].seconds
                study.tell(trial, seconds, state=_state(optuna, seconds))
            counts.append(len(ran) if ran & self.good else self._at_random_after(ran))
        return sum(counts) / SEEDS

    def _suggested(self, trial: Any, drawn: random.Random) -> int:
        """The setting that has what TPE suggests; of several, or of those nearest to it, one at random."""
        each = [_named(one) for one in self.grid.trials]
        names = sorted({name for one in each for name in one})
        values = {name: sorted({str(one.get(name)) for one in each}, key=_order) for name in names}
        wanted = {name: trial.suggest_int(name, 0, len(of) - 1) for name, of in values.items() if len(of) > 1}
        off = [
            sum(abs(values[name].index(str(one.get(name))) - place) for name, place in wanted.items()) for one in each
        ]
        return drawn.choice([place for place, far in enumerate(off) if far == min(off)])


def _state(optuna: Any, seconds: float | None) -> Any:
    return optuna.trial.TrialState.FAIL if seconds is None else optuna.trial.TrialState.COMPLETE


def _named(trial: Trial) -> dict[str, str]:
    """The settings of a trial by name."""
    words = trial.system.spec.split(":")
    return {"system": words[0], **dict(word.split("=", 1) for word in words[1:]), **dict(trial.knobs)}


def _order(value: str) -> tuple[bool, float, str]:
    try:
        return (False, float(value), "")
    except ValueError:
        return (True, 0.0, value)


@cache
def _rows() -> dict[str, list[dict[str, Any]]]:
    """The rows of each grid."""
    rows = pl.read_csv(TABLE, infer_schema_length=None).to_dicts()
    return {name: list(of) for name, of in groupby(rows, key=lambda row: str(row["grid"]))}


def names() -> list[str]:
    """Of all grids of the table."""
    return list(_rows())


def grid_named(name: str) -> PublishedGrid | None:
    """A grid of the table; None if fewer than FEWEST of its settings can be asked."""
    rows = _rows()[name]
    first = rows[0]
    tokens = int(first["prompt_tokens"] or 512) if first["objective"] == "prompt" else 0
    goal = Objective(goal="prompt", prompt_tokens=tokens) if tokens else Objective()
    try:
        on = _on(first["model"], first["machine"], int(first["depth"] or 0), tokens)
    except BadInput:
        return None
    timed, trials, outcomes = dict[System, Compared](), list[Trial](), list[Outcome]()
    for row in rows:
        try:
            system = parse_system(row["setting"])
        except BadInput:
            continue
        if system not in timed:
            timed[system] = _timed(on, system, tokens)
        trial = Trial(system, _knobs(row["knobs"] or ""))
        if goal.seconds(timed[system]) is not None and trial not in trials:
            trials.append(trial)
            outcomes.append(_outcome(row["tok_s"], tokens or 1))
    if len(trials) < FEWEST or all(one.seconds is None for one in outcomes):
        return None
    grid = Grid(tuple(trials), timed, on.case, goal, before_s={})
    return PublishedGrid(name, first["who"], first["source"], grid, tuple(outcomes), len(rows) - len(trials))


def _knobs(text: str) -> tuple[tuple[str, str], ...]:
    pairs = (one.partition("=") for one in text.split(";") if one)
    return tuple((name.strip(), value.strip()) for name, _, value in pairs)


@cache
def _on(model: str, machine: str, depth: int, tokens: int) -> Resolved:
    memory = MemoryOptions(context=max(depth + tokens + 512, 4096), depth=depth)
    geometry = load_model(model)
    if geometry.attention is None:
        memory = MemoryOptions()
    return resolve(
        workload=None, model=geometry, machine=load_machine(machine), systems="all", memory=memory, must_fit=False
    )


def _timed(on: Resolved, system: System, tokens: int) -> Compared:
    assert on.workload is not None
    try:
        sized = system if system.size_given else system.sized(on.case)
    except BadInput as error:
        return Compared.refused(system, error)
    return predicted(on.workload, on.case, sized, borrowed=bool(on.borrowed), prompt_tokens=tokens)


def _outcome(tok_s: float | None, tokens: int) -> Outcome:
    return Outcome(None, failed="out of memory", lacks="gpu") if tok_s is None else Outcome(tokens / tok_s)
