"""The choice of the next run against plain twins, laws, and searches of made-up programs."""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Sequence
from functools import cache
from itertools import combinations, pairwise

import numpy as np
import pytest

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.options import MemoryOptions
from flashmoe_sim.systems.resolve import resolve
from flashmoe_sim.tune.grid import Grid, grid
from flashmoe_sim.tune.objective import Objective
from flashmoe_sim.tune.trials import RUN_SD, SURE, Outcome, Prospects, Search, Trial

KNOBS = {"threads": ("8", "12", "16", "32")}


def some_prospects(seed: int, settings: int = 5) -> Prospects:
    draws = np.random.default_rng(seed)
    root = draws.normal(size=(settings, settings))
    return Prospects(draws.normal(size=settings), root @ root.T + 0.01 * np.eye(settings))


@pytest.mark.parametrize("seed", range(5))
def test_a_measurement_counts_as_in_the_joint_density(seed: int) -> None:
    """Twin: the product of the prior's density and the measurement's, in precisions."""
    before = some_prospects(seed)
    after = before.after(2, 1.5, 0.3)
    seen = np.zeros((5, 5))
    seen[2, 2] = 1 / 0.3**2
    prior = np.linalg.inv(before.covariance)
    covariance = np.linalg.inv(prior + seen)
    mean = covariance @ (prior @ before.mean + seen[:, 2] * 1.5)
    np.testing.assert_allclose(after.covariance, covariance, atol=1e-9)
    np.testing.assert_allclose(after.mean, mean, atol=1e-9)


def exact_gain(prospects: Prospects, place: int, sd: float, ran: Collection[int] = ()) -> float:
    """The expected largest of lines in a normal number, by the corners of their upper hull."""
    now = float(prospects.mean[[*ran]].max() if ran else prospects.mean.max())
    chosen = sorted({*ran, place}) if ran else range(5)
    slopes = prospects.covariance[place] / math.sqrt(prospects.covariance[place, place] + sd * sd)
    slopes, prospects = slopes[chosen], prospects.of(chosen)
    crossings = {-40.0, 40.0}
    for i, j in combinations(range(len(slopes)), 2):
        if abs(slopes[i] - slopes[j]) > 1e-12:
            crossings.add(float((prospects.mean[j] - prospects.mean[i]) / (slopes[i] - slopes[j])))
    total = 0.0
    for lo, hi in pairwise(sorted(one for one in crossings if abs(one) <= 40)):
        top = int(np.argmax(prospects.mean + slopes * (lo + hi) / 2))
        mass = (math.erf(hi / math.sqrt(2)) - math.erf(lo / math.sqrt(2))) / 2
        density = (math.exp(-lo * lo / 2) - math.exp(-hi * hi / 2)) / math.sqrt(2 * math.pi)
        total += prospects.mean[top] * mass + slopes[top] * density
    return total - now


@pytest.mark.parametrize("ran", [(), (1,), (0, 3)])
@pytest.mark.parametrize("seed", range(5))
def test_what_a_run_is_worth(seed: int, ran: tuple[int, ...]) -> None:
    prospects = some_prospects(seed)
    worth = prospects.worth(0.2, ran)
    for place in range(5):
        assert worth[place] == pytest.approx(exact_gain(prospects, place, 0.2, ran), abs=0.01)
    assert (worth >= -0.01).all()


def test_what_is_known_is_sure_and_worth_nothing() -> None:
    known = Prospects(np.log([10.0, 9.0, 9.8]), 1e-12 * np.eye(3))
    assert known.worth(RUN_SD).max() < 1e-6
    assert [known.sure(place) for place in range(3)] == [1.0, 0.0, 1.0]


@cache
def grid_of(systems: str = "placed,cpu,all-gpu") -> Grid:
    machine = load_machine("rtx-4090 + ryzen-7950x + 96GiB")
    model = load_model("gpt-oss-120b")
    on = resolve(workload=None, model=model, machine=machine, systems=systems, memory=MemoryOptions())
    assert on.workload is not None
    return grid(on.workload, on.case, on.systems, Objective(), knobs=KNOBS, borrowed=True)


class Program:
    """Speeds that differ from the predicted ones by a common factor, by threads, and from run to run."""

    def __init__(self, of: Grid, seed: int, least_layers: int = 0) -> None:
        self.of, self.drawn, self.least_layers = of, random.Random(seed), least_layers
        self.times = math.exp(self.drawn.gauss(0, 0.4))
        self.of_threads = {value: math.exp(self.drawn.gauss(0, 0.07)) for value in KNOBS["threads"]}

    def seconds(self, trial: Trial) -> float | None:
        """Without the noise of a run; None if memory lacks."""
        if getattr(trial.system, "cpu_layers", 99) < self.least_layers:
            return None
        predicted = self.of.objective.seconds(self.of.timed[trial.system])
        assert predicted is not None
        return predicted * self.times * self.of_threads[dict(trial.knobs)["threads"]]

    def run(self, trial: Trial) -> Outcome:
        seconds = self.seconds(trial)
        if seconds is None:
            return Outcome(None, failed="out of memory", lacks="gpu")
        return Outcome(seconds * math.exp(self.drawn.gauss(0, 0.01)))


@pytest.mark.parametrize("seed", range(3))
def test_a_few_runs_find_the_fastest_of_many_settings(seed: int) -> None:
    of = grid_of()
    program, search = Program(of, seed, least_layers=25), of.search()
    while search.sure < SURE and not search.is_even:
        place = search.next(lambda _: 1.0)
        assert place is not None
        search.hear(place, program.run(of.trials[place]))
        assert len(search.ran) <= len(of.trials) / 3
    assert search.best is not None
    best = min(seconds for trial in of.trials if (seconds := program.seconds(trial)) is not None)
    found = program.seconds(of.trials[search.best])
    assert found is not None
    assert found < 1.05 * best


def test_what_may_lack_memory_is_tried_one_step_at_a_time() -> None:
    of = grid_of("placed")
    search = of.search()
    tight = [place for place, one in enumerate(search.tight) if one]
    assert tight
    first = search.next(lambda _: 1.0)
    assert first not in tight
    search.hear(first, Outcome(0.05))
    kept = search.kept_bytes["gpu"]
    lacking = min(tight, key=lambda place: kept[place])
    search.hear(lacking, Outcome(None, failed="out of memory", lacks="gpu"))
    assert search.failed == {place for place, size in enumerate(kept) if size >= kept[lacking]}
    for _ in range(10):
        place = search.next(lambda _: 1.0)
        assert place is not None
        assert place not in search.failed
        search.hear(place, Outcome(0.05))


def search_of(mean: Sequence[float], apart: float, *, full: Sequence[bool]) -> Search:
    """A search among settings whose errors are alike but for `apart`, each with more GPU memory than the one before."""
    covariance = 0.16 + apart**2 * np.eye(len(mean))
    trials, kept = grid_of("placed").trials[: len(mean)], {"gpu": [*range(1, len(mean) + 1)]}
    return Search(trials, Prospects(np.array(mean), covariance), [False] * len(mean), full, kept)


def test_it_does_not_end_before_what_is_surely_faster_ran() -> None:
    """A run of it says nothing that is not known, but only what ran is chosen."""
    search = search_of([0.0, 0.13], 0.001, full=[False, False])
    search.hear(0, Outcome(1.0))
    search.hear(0, Outcome(1.0))
    assert not search.is_even
    assert search.next(lambda _: 1.0) == 1


def test_what_spills_into_ram_says_nothing_of_smaller_ones() -> None:
    search = search_of([0.0, 0.07, 0.14], 0.1, full=[False, True, True])
    for place, seconds in ((2, 1.5), (0, 0.5)):
        search.hear(place, Outcome(seconds))
    assert (search.spilled, search.failed) == ({2}, {2})
    assert search.next(lambda _: 1.0) == 1
    search.hear(1, Outcome(0.47))
    assert search.best == 1


def test_a_slow_run_with_memory_to_spare_is_no_spill() -> None:
    search = search_of([0.0, 0.07, 0.14], 0.1, full=[False, False, False])
    search.hear(2, Outcome(1.5))
    search.hear(0, Outcome(0.5))
    assert not search.failed


def test_a_plan_may_be_wrong_by_some_layers() -> None:
    of = grid_of("placed")
    gpu = of.case.machine.gpu
    assert gpu is not None
    assert gpu.memory_gib is not None
    beyond = {one for one in of.timed if (of.timed[one].gpu_bytes or 0) > gpu.memory_gib.value * GIB}
    assert beyond
    assert all(of.timed[one].tight for one in beyond)


def test_a_gpu_that_is_too_small_says_nothing_of_the_cpu() -> None:
    of = grid_of()
    search = of.search()
    on_gpu = [place for place, size in enumerate(search.kept_bytes["gpu"]) if size]
    search.hear(min(on_gpu, key=lambda place: search.kept_bytes["gpu"][place]), Outcome(None, failed="no", lacks="gpu"))
    assert search.failed == {*on_gpu}
    place = search.next(lambda _: 1.0)
    assert place is not None
    assert of.trials[place].system.name == "cpu"


def test_a_program_that_becomes_slower_is_not_believed() -> None:
    of = grid_of("placed")
    search = of.search()
    for number in range(12):
        place = search.next(lambda _: 1.0)
        assert place is not None
        search.hear(place, Outcome(0.05 if number < 2 else 0.2))
        assert search.sure < SURE


def test_runs_alike_replace_the_guess_of_a_disturbed_machine() -> None:
    search = Search(
        [Trial(one.system) for one in grid_of("placed").trials[:2]],
        some_prospects(0, 2),
        [False] * 2,
        [False] * 2,
        {"gpu": [1, 2]},
    )
    search.hear(0, Outcome(0.05, disturbed=True))
    assert search.run_sd == pytest.approx(0.3)
    for _ in range(8):
        search.hear(0, Outcome(0.05, disturbed=True))
    assert search.run_sd == pytest.approx(0.1)
