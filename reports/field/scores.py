"""How good predictions are: in sample, with a series or a machine left out, and beside the model on paper."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple

from reports.field.outcome import Outcome, outcome
from reports.field.predict import Raw
from reports.field.prior import HitCurve
from reports.field.rows import FieldRow
from reports.field.tune import Tuned, costs_of, engine_of, residual, with_spread

TWO = math.log(2)
LEAST_SERIES = 3
OF_AN_ENGINE = 4


@dataclass(frozen=True)
class Judged:
    """A row with its predictions: tuned with all rows, and without its series or its machine; None without any.

    blind: without its machine, and without its own hit rate. naive: the model on paper.
    """

    row: FieldRow
    in_sample: Outcome
    without_series: Outcome
    without_machine: Outcome
    blind: Outcome
    naive: float | None


@dataclass(frozen=True)
class Score:
    """Errors of some rows. covered: the share inside the interval; None for predictions that have none."""

    rows: int
    error: float
    within_2: float
    covered: float | None = None


def counts(row: FieldRow, *, decode: bool = True) -> bool:
    """Whether a row is judged: confidence A or B, no note against it, and a decode speed if that is what is judged."""
    good = row.confidence in ("A", "B") and "exclude from fits" not in row.notes.lower()
    return good and (bool(row.decode_tok_s) or not decode)


def series_of(row: FieldRow) -> str:
    """The row's series; a row of none is its own."""
    return row.series or row.id


def machine_id(row: FieldRow) -> str:
    """The machine that a row ran on, as the table has it."""
    return row.machine_id or row.id


def all_tuned(raws: Sequence[Raw], curves: dict[str, HitCurve]) -> Tuned:
    """Tuned with all rows, with the spread of errors of rows that were left out."""
    priced = [raw for raw in raws if raw.blind is not None]
    return _with_errors(costs_of(priced, curves), _errors(priced, curves), leaving=set())


def judged(raws: Sequence[Raw], curves: dict[str, HitCurve]) -> list[Judged]:
    """Every row with all its predictions."""
    priced = [raw for raw in raws if raw.blind is not None]
    errors = _errors(priced, curves)
    everything = _with_errors(costs_of(priced, curves), errors, leaving=set())
    without = {key: _left_out(priced, curves, errors, key) for key in (series_of, machine_id)}
    found = []
    for raw in raws:
        series, machine = (without[key].get(key(raw.row), everything) for key in (series_of, machine_id))
        found.append(
            Judged(
                raw.row,
                outcome(raw, everything),
                outcome(raw, series),
                outcome(raw, machine),
                outcome(raw, machine, blind=True),
                raw.naive_informed or raw.naive,
            )
        )
    return found


def _left_out(
    raws: Sequence[Raw], curves: dict[str, HitCurve], errors: Sequence[_Error], key: Callable[[FieldRow], str]
) -> dict[str, Tuned]:
    """What is tuned without the rows of each key."""
    found = {}
    for name in sorted({key(raw.row) for raw in raws}):
        out = {raw.row.id for raw in raws if key(raw.row) == name}
        costs = costs_of([raw for raw in raws if raw.row.id not in out], curves)
        found[name] = _with_errors(costs, errors, leaving=out)
    return found


class _Error(NamedTuple):
    """ln(measured / predicted) of a row, left out with its series, and with its engine."""

    row_id: str
    engine: str
    known: float
    unknown: float


def _errors(raws: Sequence[Raw], curves: dict[str, HitCurve]) -> list[_Error]:
    without = {
        key: {
            name: costs_of([raw for raw in raws if key(raw.row) != name], curves)
            for name in {key(raw.row) for raw in raws}
        }
        for key in (series_of, engine_of)
    }
    found = []
    for raw in raws:
        known, unknown = (residual(raw, without[key][key(raw.row)].cost(raw.row)) for key in (series_of, engine_of))
        found.append(_Error(raw.row.id, engine_of(raw.row), known, unknown))
    return found


def _with_errors(found: Tuned, errors: Sequence[_Error], *, leaving: Set[str]) -> Tuned:
    """With the spread of these errors; of errors with the engine unknown at most a few of each engine count."""
    some = [error for error in errors if error.row_id not in leaving]
    by_engine = defaultdict(list)
    for error in some:
        by_engine[error.engine].append(error.unknown)
    unknown = [one for of in by_engine.values() for one in of[:: max(len(of) // OF_AN_ENGINE, 1)]]
    return with_spread(found, [(error.engine, error.known) for error in some], unknown)


def score(found: Sequence[Outcome]) -> Score | None:
    """Errors of predictions; None if there is none."""
    known = [(one.tok_s, one.lo, one.hi, one.raw.row.decode_tok_s) for one in found if one.tok_s is not None]
    if not known:
        return None
    within = [lo is not None and hi is not None and lo <= (real or 0) <= hi for _, lo, hi, real in known]
    base = naive_score([(tok_s, real) for tok_s, _, _, real in known])
    return Score(base.rows, base.error, base.within_2, statistics.fmean(within))


def naive_score(pairs: Sequence[tuple[float | None, float | None]]) -> Score:
    """Errors of predicted and measured speeds."""
    known = [(tok_s, real) for tok_s, real in pairs if tok_s and real]
    return Score(
        len(known),
        statistics.median(abs(tok_s / real - 1) for tok_s, real in known),
        statistics.fmean(abs(math.log(tok_s / real)) <= TWO for tok_s, real in known),
    )


def grouped(found: Sequence[Judged], key: Callable[[FieldRow], str]) -> Mapping[str, list[Judged]]:
    """Rows with a prediction by strategy, engine or machine, the largest group first."""
    groups = defaultdict(list)
    for one in found:
        if one.in_sample.tok_s is not None:
            groups[key(one.row)].append(one)
    return dict(sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])))


@dataclass(frozen=True)
class Ranked:
    """A series: Kendall's tau of its settings, and what choosing the best predicted one loses against the best."""

    series: str
    varies: str
    rows: int
    tau: float
    regret: float
    naive_tau: float
    naive_regret: float


def ranked(found: Sequence[Judged]) -> list[Ranked]:
    """Series with three or more predicted rows."""
    groups = defaultdict(list)
    for one in found:
        if one.row.series and one.without_machine.tok_s is not None:
            groups[one.row.series].append(one)
    rows = []
    for name, group in groups.items():
        if len(group) < LEAST_SERIES:
            continue
        real = [one.row.decode_tok_s or 0.0 for one in group]
        ours = [one.without_machine.tok_s or 0.0 for one in group]
        naive = [one.naive or 0.0 for one in group]
        rows.append(
            Ranked(
                name,
                group[0].row.varies,
                len(group),
                tau(ours, real),
                regret(ours, real),
                tau(naive, real),
                regret(naive, real),
            )
        )
    return rows


def tau(ours: Sequence[float], real: Sequence[float]) -> float:
    """Kendall's tau-b; 0 if either side is the same everywhere. Predictions within 0.1% are ties."""
    agree, ours_differ, real_differ = 0, 0, 0
    for i in range(len(ours)):
        for j in range(i):
            one = _sign(ours[i], ours[j], 1e-3)
            other = _sign(real[i], real[j], 0.0)
            agree, ours_differ, real_differ = agree + one * other, ours_differ + abs(one), real_differ + abs(other)
    return agree / math.sqrt(ours_differ * real_differ) if ours_differ and real_differ else 0.0


def regret(ours: Sequence[float], real: Sequence[float]) -> float:
    """What the best predicted setting loses against the best one; of several alike, their mean."""
    best = max(ours)
    chosen = [speed for speed, own in zip(real, ours, strict=True) if own >= best * (1 - 1e-3)]
    return 1 - statistics.fmean(chosen) / max(real)


def _sign(one: float, other: float, tolerance: float) -> int:
    return 0 if abs(one - other) <= tolerance * max(one, other) else (1 if one > other else -1)
