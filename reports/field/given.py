"""Speeds of a machine of which others were measured: what these teach about its parts, the engine and the model.

The logarithm of measured over predicted speed is a sum of unknowns: how much faster each part of the machine is than
thought, weighted by its share of the time; how an engine's strategy runs on this machine; how the model's kernels do;
the setting; and what two runs of the same differ by. A measurement on the machine narrows all that it shares with the
row to be predicted.
"""

from __future__ import annotations

import math
import random
import tomllib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from flashmoe_sim.machines.belief import SD_90
from flashmoe_sim.machines.learnt import Learnt, Loads, learn
from reports.field.outcome import Outcome
from reports.field.rows import FieldRow
from reports.field.scores import Judged, machine_id
from reports.field.tune import engine_of, price_of
from reports.pages import joined, table

FILE = Path(__file__).with_name("given.toml")
PARTS = {
    "cpu": ("cold_lane",),
    "gpu": ("dense", "experts", "merge", "output"),
    "read": ("read", "late", "ahead"),
    "upload": ("upload",),
}
SHARED: dict[str, Callable[[FieldRow], str]] = {
    "model": lambda row: row.model.lower(),
    "engine": lambda row: f"{engine_of(row)}, {row.strategy}",
    "setting": lambda row: f"{engine_of(row)}, {row.strategy}, {row.model.lower()}, {row.quant.lower()}",
}
OWN = "own"
NAMES = (*PARTS, *SHARED, OWN)
MOST = 1.0  # of ln(measured / predicted), where variances are fitted: more is a row that ran otherwise than it says
LEAST_VARIANCE, MOST_VARIANCE, FIRST = 1e-4, 3.0, 0.02
PRIOR = 0.02  # of the sum of variances, which no row may make arbitrarily large
FOLDS = 8
SEED = 1
HEAD = """What one measurement of your own is worth: rows are predicted from other rows of their machine, as if the user
had measured these. Everything is tuned without the machine. A measurement teaches how fast each part of the machine
is, how the engine's strategy and the model's kernels do on it, and how the setting does; all this is learnt at once,
by conditioning one normal distribution. `python -m reports.field FILE.csv --given GIVEN.csv` predicts so.
"""


@dataclass(frozen=True)
class Spread:
    """What is fitted: the standard deviation of each of NAMES, and a factor that makes 90% intervals hold 90%."""

    sd: Mapping[str, float]
    widen: float = 1.0


class Miss(NamedTuple):
    """How far a measured speed is from its prediction, and what explains it: by part its share of the time, and by kind
    the group that the row is in."""

    row: FieldRow
    off: float
    shares: dict[str, float]
    groups: dict[str, str]


def miss_of(one: Outcome) -> Miss:
    """A predicted row; its deviation is not a number if the row has no measured speed."""
    assert one.tok_s is not None
    assert one.raw.way is not None
    part_s, row = price_of(one.raw).part_s, one.raw.row
    shares = {part: sum(part_s.get(name, 0.0) for name in names) for part, names in PARTS.items()}
    if one.raw.way.machine.gpu is None:
        shares = shares | {"cpu": shares["cpu"] + shares["gpu"], "gpu": 0.0}
    total = sum(part_s.values())
    off = math.log(row.decode_tok_s / one.tok_s) if row.decode_tok_s else math.nan
    shares = {part: seconds / total for part, seconds in shares.items()}
    return Miss(row, off, shares, {kind: of(row) for kind, of in SHARED.items()})


def loads(miss: Miss, spread: Spread) -> Loads:
    """What each unknown of the row's machine adds to the logarithm of its speed."""
    parts = {part: spread.sd[part] * share for part, share in miss.shares.items()}
    return parts | {f"{kind} {name}": spread.sd[kind] for kind, name in miss.groups.items()}


def learnt_from(given: Sequence[Miss], spread: Spread) -> Learnt:
    """What the measured rows of one machine teach."""
    return learn([loads(one, spread) for one in given], [one.off for one in given], [spread.sd[OWN]] * len(given))


def deviation(miss: Miss, learnt: Learnt, spread: Spread) -> tuple[float, float]:
    """The expected logarithm of measured over predicted speed, and its standard deviation, after what was learnt."""
    mean, variance = learnt.of(loads(miss, spread))
    return mean, spread.widen * math.sqrt(variance + spread.sd[OWN] ** 2)


def with_given(found: Sequence[Outcome], given: Sequence[Outcome], spread: Spread) -> list[Outcome]:
    """The predictions, changed by what was measured on the same machine."""
    of_machine = defaultdict(list)
    for one in given:
        if not why_unused(one):
            of_machine[one.raw.row.machine_id].append(miss_of(one))
    learnt = {machine: learnt_from(misses, spread) for machine, misses in of_machine.items()}
    return [_changed(one, learnt.get(one.raw.row.machine_id), spread) for one in found]


def why_unused(one: Outcome) -> str:
    """Why a measured row teaches nothing, or empty."""
    if one.tok_s is None:
        return one.why or "is not predicted"
    row = one.raw.row
    lacks = [name for name in ("machine_id", "decode_tok_s") if not getattr(row, name)]
    return f"has no {' and no '.join(lacks)}" if lacks else ""


def _changed(one: Outcome, learnt: Learnt | None, spread: Spread) -> Outcome:
    if one.tok_s is None or learnt is None:
        return one
    mean, sd = deviation(miss_of(one), learnt, spread)
    tok_s = one.tok_s * math.exp(mean)
    width = math.exp(SD_90 * sd)
    return Outcome(one.raw, tok_s, tok_s / width, tok_s * width, one.why)


def fitted(misses: Sequence[Miss]) -> Spread:
    """The likeliest standard deviations; a machine counts as the square root of its rows."""
    machines = defaultdict(list)
    for miss in misses:
        machines[machine_id(miss.row)].append(miss)
    of_size = defaultdict(list)
    for rows in machines.values():
        of_size[len(rows)].append(rows)
    groups = [
        (
            np.clip([[one.off for one in rows] for rows in alike], -MOST, MOST),
            np.array([[_shared(rows, name) for rows in alike] for name in NAMES]),
        )
        for alike in of_size.values()
    ]

    def unlikely(logs: NDArray[np.float64]) -> float:
        variances = np.exp(logs)
        return sum(_unlikely(off, shared, variances) for off, shared in groups) + PRIOR * float(variances.sum())

    ends = math.log(LEAST_VARIANCE), math.log(MOST_VARIANCE)
    best = minimize(unlikely, np.full(len(NAMES), math.log(FIRST)), bounds=[ends] * len(NAMES), method="L-BFGS-B")
    spread = Spread(dict(zip(NAMES, np.exp(best.x / 2).tolist(), strict=True)))
    return Spread(spread.sd, _widened(list(machines.values()), spread))


def _shared(rows: Sequence[Miss], name: str) -> NDArray[np.float64]:
    """What two rows of a machine have in common of an unknown, if it has the variance 1: f64 [rows, rows]."""
    if name in PARTS:
        share = np.array([row.shares[name] for row in rows])
        return np.outer(share, share)
    if name == OWN:
        return np.eye(len(rows))
    of = np.array([row.groups[name] for row in rows])
    return np.asarray(of[:, None] == of, np.float64)


def _unlikely(off: NDArray[np.float64], shared: NDArray[np.float64], variances: NDArray[np.float64]) -> float:
    """Of machines with as many rows each. off: f64 [machines, rows]. shared: f64 [names, machines, rows, rows]."""
    root = np.linalg.cholesky(np.tensordot(variances, shared, 1))
    scaled = np.linalg.solve(root, off[:, :, None])
    sizes = np.log(np.diagonal(root, axis1=1, axis2=2))
    return float(0.5 * (scaled**2).sum() + sizes.sum()) / math.sqrt(off.shape[1])


def _widened(machines: Sequence[Sequence[Miss]], spread: Spread) -> float:
    """The factor that intervals need to hold 90% of rows, each given another row of its machine."""
    sizes, weights = list[float](), list[float]()
    for rows in machines:
        for given in rows:
            learnt = learnt_from([given], spread)
            for one in rows:
                if one is not given:
                    mean, sd = deviation(one, learnt, spread)
                    sizes.append(abs(one.off - mean) / sd)
                    weights.append(1 / (len(rows) - 1))
    return quantile(np.array(sizes), np.array(weights), 0.9) / SD_90 if sizes else 1.0


def quantile(values: NDArray[np.float64], weights: NDArray[np.float64], share: float) -> float:
    """The least value up to which values have this share of the weights."""
    order = np.argsort(values)
    upto = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(upto, share * upto[-1])])


def save(spread: Spread, path: Path = FILE) -> None:
    """Write what is fitted."""
    lines = ["# Made by `python -m reports.field --tune`: see reports/field/given.py.", f"widen = {spread.widen:.3g}"]
    lines += ["", "[sd]", *(f"{name} = {value:.3g}" for name, value in spread.sd.items())]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def load(path: Path = FILE) -> Spread:
    """What the file has."""
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    return Spread(document["sd"], document["widen"])


def _same(one: Miss, other: Miss, *kinds: str) -> bool:
    return all(one.groups[kind] == other.groups[kind] for kind in kinds)


ALIKE: dict[str, Callable[[Miss, Miss], bool]] = {
    "one of its series": lambda one, given: bool(one.row.series) and one.row.series == given.row.series,
    "one of its engine and model": lambda one, given: _same(one, given, "engine", "model"),
    "one of its engine, of another model": lambda one, given: (
        _same(one, given, "engine") and not _same(one, given, "model")
    ),
    "one of another engine or strategy": lambda one, given: not _same(one, given, "engine"),
}
GIVEN = ("nothing", "one row", *ALIKE, "two rows")


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
    """Predictions from what GIVEN says, without what the machine's fit saw."""
    machines = defaultdict(list)
    for miss in misses:
        machines[machine_id(miss.row)].append(miss)
    names = sorted(machines)
    random.Random(SEED).shuffle(names)
    found: dict[str, list[Guess]] = {name: [] for name in GIVEN}
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
            for name, alike in ALIKE.items():
                if alike(one, given):
                    times = sum(alike(one, other) for other in rows if other is not one)
                    found[name].append(_guess(one, learnt, spread, 1 / times))
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
