"""The part of the page on measurements of one's own: rows predicted from others of their machine."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from flashmoe_sim.machines.belief import SD_90
from flashmoe_sim.machines.learnt import Learnt
from reports.field.given import Miss, Spread, deviation, fitted, learnt_from, miss_of, quantile
from reports.field.scores import Judged, machine_id
from reports.pages import joined, table

FOLDS = 8
SEED = 1
HEAD = """What one measurement of your own is worth: rows are predicted from other rows of their machine, as if the user
had measured these. Everything is tuned without the machine. A measurement teaches how fast each part of the machine
is, how the engine's strategy and the model's kernels do on it, and how the setting does; all this is learnt at once,
by conditioning one normal distribution. `python -m reports.field FILE.csv --given GIVEN.csv` predicts so.
"""


class Guess(NamedTuple):
    """ln(measured / predicted), its standard deviation, and how much the prediction counts in a score."""

    off: float
    sd: float
    weight: float


def tune(rows: Sequence[Judged]) -> Spread:
    """The spread of all rows."""
    return fitted(_misses(rows))


def section(rows: Sequence[Judged], spread: Spread) -> str:
    """Errors with no, one and two measured rows of the machine; and what is fitted."""
    cells = (_cells(name, some) for name, some in guesses(_misses(rows)).items())
    head = ("given", "rows", "median error", "within 1.5x", "within 2x", "in the interval", "ends apart")
    sds = ", ".join(f"{name} {sd:.2f}" for name, sd in spread.sd.items())
    fits = (
        "A row counts once, whatever the number of its machine's rows. Standard deviations of the logarithm, each part "
        f"weighted by its share of the time: {sds}."
    )
    return joined(HEAD, table(head, cells, left=None), fits)


def guesses(misses: Sequence[Miss]) -> dict[str, list[Guess]]:
    """Predictions from nothing, one other row, one of the same series, and two, without what the machine's fit saw."""
    machines = defaultdict(list)
    for miss in misses:
        machines[machine_id(miss.row)].append(miss)
    names = sorted(machines)
    random.Random(SEED).shuffle(names)
    found: dict[str, list[Guess]] = {name: [] for name in ("nothing", "one row", "one of its series", "two rows")}
    for fold in range(FOLDS):
        held = names[fold::FOLDS]
        spread = fitted([miss for miss in misses if machine_id(miss.row) not in held])
        for name in held:
            if len(machines[name]) > 1:
                _add(found, machines[name], spread)
    return found


def _add(found: dict[str, list[Guess]], rows: list[Miss], spread: Spread) -> None:
    found["nothing"] += [_guess(one, learnt_from([], spread), spread, 1.0) for one in rows]
    for given in rows:
        learnt = learnt_from([given], spread)
        for one in rows:
            if one is given:
                continue
            found["one row"].append(_guess(one, learnt, spread, 1 / (len(rows) - 1)))
            if one.row.series and one.row.series == given.row.series:
                alike = sum(other.row.series == one.row.series for other in rows) - 1
                found["one of its series"].append(_guess(one, learnt, spread, 1 / alike))
    for one in rows:
        others = [other for other in rows if other is not one]
        if len(others) > 1:
            two = random.Random(one.row.id).sample(others, 2)
            found["two rows"].append(_guess(one, learnt_from(two, spread), spread, 1.0))


def _guess(one: Miss, learnt: Learnt, spread: Spread, weight: float) -> Guess:
    mean, sd = deviation(one, learnt, spread)
    return Guess(one.off - mean, sd, weight)


def _misses(rows: Sequence[Judged]) -> list[Miss]:
    return [miss_of(one.without_machine) for one in rows if one.without_machine.tok_s is not None]


def _cells(name: str, some: Sequence[Guess]) -> tuple[str, ...]:
    off, sd, weight = (np.array(column) for column in zip(*some, strict=True))
    shares = [float(np.average(np.abs(off) <= most, weights=weight)) for most in (math.log(1.5), math.log(2))]
    shares.append(float(np.average(np.abs(off) <= SD_90 * sd, weights=weight)))
    error, width = (quantile(values, weight, 0.5) for values in (np.abs(np.expm1(-off)), 2 * SD_90 * sd))
    within = (f"{share:.0%}" for share in shares)
    return name, f"{weight.sum():.0f}", f"{error:.1%}", *within, f"a factor of {math.exp(width):.1f}"
