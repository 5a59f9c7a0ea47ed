"""Measurements drawn from the model itself: whether what is learnt from them holds as often as it says.

`python -m reports.field.simulated` writes simulated.csv, in eight minutes and 5 GB of memory; the page shows it. A
machine is drawn from its own uncertainty, and so are an engine's errors on it; one to three settings are measured
there, another is predicted. A wrong measurement is four times as fast or a quarter as fast as it was.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from flashmoe_sim.geometry.named import named_model
from flashmoe_sim.machines.anchors import SPEED_SD
from flashmoe_sim.machines.belief import at, error_loads
from flashmoe_sim.machines.learning import Learner, Observation
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.machine import SIZES, Machine
from flashmoe_sim.measured.learn import DOUBTED, Expected
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.systems.base import Case, System
from flashmoe_sim.systems.compare import Replays, at_setting, case_of, speed_of
from flashmoe_sim.systems.table import parse_system
from flashmoe_sim.trace.load import load_trace
from reports.pages import joined, table

TABLE = Path(__file__).with_name("simulated.csv")
CASES = 300
MOST_MEASURED = 3
WRONG = (0.25, 4.0)
INTRO = """Machines are drawn from their own uncertainty, with errors of engines from theirs; up to three settings are
measured on each, and another is predicted. A wrong measurement is four times too fast, or too slow.
`python -m reports.field.simulated` makes [simulated.csv](simulated.csv).
"""
MACHINES = (
    "rtx-3090",
    "rtx-3060 + ryzen-5600 + 64GiB",
    "rtx-5090 + ryzen-9950x + 96GiB",
    "m3-max-48",
    "strix-halo-128",
)
MODELS = (("qwen3-30b-a3b", "qwen3-30b-mlx"), ("gpt-oss-120b", "gpt-oss-120b"))
SETTINGS = ("all-gpu", "cpu", *(f"{name}:cpu_layers={n}" for name in ("placed", "placed-ik") for n in (8, 16, 24, 34)))


class Ran(NamedTuple):
    """A setting that runs on a machine, and what is predicted of it."""

    system: System
    workload: Workload
    case: Case
    observation: Observation
    replays: Replays

    def on(self, machine: Machine) -> Expected:
        """What is printed of it on a machine."""
        case = replace(self.case, machine=machine)
        found = at_setting(self.workload, case, self.system, replays=self.replays)
        return Expected(found.tok_s_lo or math.nan, found.tok_s or math.nan, found.tok_s_hi or math.nan)


def cases(count: int = CASES, seed: int = 1) -> pl.DataFrame:
    """A row for each case and number of measurements, from 0.

    off: ln(truth / prediction). lo, hi: the ends of the 90% interval, likewise. doubted, wrong_doubted: whether the
    next measurement would not be used as it is, and if it were wrong; null if there is none.
    """
    random, places = np.random.default_rng(seed), [place for place in _places() if len(place) > MOST_MEASURED]
    rows = []
    for number in range(count):
        place = places[number % len(places)]
        chosen = [place[pick] for pick in random.permutation(len(place))[: MOST_MEASURED + 1]]
        rows += _case(number, chosen, random)
    return pl.DataFrame(rows)


def _places() -> Iterator[list[Ran]]:
    """For each machine and model, the settings that run."""
    for name in MACHINES:
        machine = load_machine(name)
        for model, trace in MODELS:
            workload = prepare(load_trace(trace), named_model(model))
            assert workload.geometry is not None
            case = case_of(workload.geometry, machine, workload=workload)
            systems = [parse_system(setting) for setting in SETTINGS]
            runs = [one for one in systems if at_setting(workload, case, one, interval=False).tok_s]
            replays: Replays = {}
            yield [Ran(one, workload, case, _observation(workload, case, one), replays) for one in runs]


def _observation(workload: Workload, case: Case, system: System) -> Observation:
    whose = system.whose(case.model.base_name)
    return Observation(1.0, speed_of(workload, case, system), error_loads(case.machine, whose), SPEED_SD)


def _case(number: int, chosen: list[Ran], random: np.random.Generator) -> list[dict[str, Any]]:
    """Truth is drawn; the first setting is predicted from none, one, … of the others."""
    (target, *others), machine = chosen, chosen[0].case.machine
    speeds = _drawn(machine, [one.observation for one in chosen], random)
    rows, known, now = [], list[Observation](), machine
    for measured in range(len(others) + 1):
        found = target.on(now)
        off = (math.log(value / found.tok_s) for value in (speeds[0], found.lo, found.hi))
        row: dict[str, Any] = {"case": number, "machine": machine.name, "model": target.case.model.name}
        row |= {"measured": measured, **dict(zip(("off", "lo", "hi"), off, strict=True))}
        rows.append(row | {"doubted": None, "wrong_doubted": None})
        if measured == len(others):
            break
        seen = replace(others[measured].observation, tok_s=speeds[measured + 1])
        expects = others[measured].on(now)
        z, of_wrong = (expects.off(times * seen.tok_s) for times in (1.0, WRONG[number % 2]))
        rows[-1] |= {"doubted": abs(z) > DOUBTED, "wrong_doubted": abs(of_wrong) > DOUBTED}
        known.append(seen)
        now = Learner(machine).after(known)
    return rows


def _drawn(machine: Machine, seen: Sequence[Observation], random: np.random.Generator) -> list[float]:
    """The speeds of settings on a machine drawn from its uncertainty, with errors of engines drawn from theirs."""
    errors = dict[str, float]()
    for path, quantity in machine.quantities():
        if path not in SIZES and quantity.lo != quantity.hi:
            machine = machine.varied(path, at(quantity, random.standard_normal()))
    speeds = []
    for one in seen:
        engine = sum(load * errors.setdefault(name, random.standard_normal()) for name, load in one.loads.items())
        speeds.append(one.speed_on(machine) * math.exp(engine + SPEED_SD * random.standard_normal()))
    return speeds


def section(found: pl.DataFrame) -> str:
    """How often intervals hold and how wide they are by number of measurements; how often measurements are doubted."""
    lines = []
    for measured in range(MOST_MEASURED + 1):
        rows = found.filter(measured=measured)
        inside = float(
            np.mean(rows.select(pl.col("off").is_between(pl.col("lo"), pl.col("hi"))).to_series().to_numpy())
        )
        apart = math.exp(float(np.median((rows["hi"] - rows["lo"]).to_numpy())))
        doubts = (rows[name].drop_nulls() for name in ("doubted", "wrong_doubted"))
        cells = (f"{np.mean(each.to_numpy()):.1%}" if len(each) else "" for each in doubts)
        lines.append((measured, len(rows), f"{inside:.1%}", f"{apart:.2f}x", *cells))
    head = ("measured", "cases", "inside", "ends apart", "the next one, right, is doubted", "a wrong one")
    return joined(INTRO, table(head, lines, left=None))


if __name__ == "__main__":
    cases(int(sys.argv[1]) if len(sys.argv) > 1 else CASES).with_columns(pl.selectors.float().round(4)).write_csv(TABLE)
