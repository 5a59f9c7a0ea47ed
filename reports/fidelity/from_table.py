"""Runs that a published table tells of, and machines fitted on some of its rows."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.machines.belief import SD_90
from flashmoe_sim.machines.machine import Anchors, Machine
from flashmoe_sim.timeline.assemble import Conditions, Weights, price, weigh
from flashmoe_sim.timeline.from_rates import made_work
from flashmoe_sim.timeline.models.table import parse_execution
from flashmoe_sim.timeline.run import simulate
from flashmoe_sim.timeline.timing import Timing, timing_of
from flashmoe_sim.timeline.work import Work
from reports.fidelity.prediction import Prediction

PUBLISHED = Path(__file__).parents[2] / "data" / "published"
NEWTON_STEPS, NEARLY, BEYOND = 6, 1e-9, 1e-3


def table(name: str) -> list[dict[str, str]]:
    """The rows of a published table."""
    with (PUBLISHED / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def column(name: str, key: str, value: str) -> dict[str, float]:
    """Two columns of a published table, as keys and values."""
    return {row[key]: float(row[value]) for row in table(name)}


@dataclass(frozen=True, eq=False)
class TableRun:
    """A row of a table, as work for a machine; the runtime reads a matrix at once unless it is told to split."""

    work: Work
    weights: Weights
    conditions: Conditions

    def timing(self, machine: Machine) -> Timing:
        costs = price(self.weights, machine, self.conditions, io_split=1)
        return timing_of(simulate(self.work, costs, self.conditions.execution), self.work)

    def tok_s(self, machine: Machine) -> float:
        tok_s = self.timing(machine).tok_s
        assert tok_s is not None
        return tok_s


def table_run(
    model: str,
    execution: str,
    *,
    top_k: int,
    misses_per_call: float,
    page_cache_share: float = 0.0,
    dense_bytes: int | None = None,
) -> TableRun:
    """A row of a table that says how often the bank of a named model missed."""
    geometry = load_model(model)
    conditions = Conditions(parse_execution(execution), dense_bytes=dense_bytes)
    weights = weigh(geometry, tuple(geometry.layers.values()), conditions)
    work = made_work(
        layers=len(weights.layers),
        top_k=top_k,
        misses_per_call=misses_per_call,
        page_cache_share=page_cache_share,
    )
    return TableRun(work, weights, conditions)


def timed_by_layer(machine: Machine, section: str, model: str) -> Machine:
    """The machine with computing in `layer_us` of its gpu or cpu, as a table gives it, and not in weights_gb_s."""
    unit = replace(getattr(machine, section), weights_gb_s=None)
    return replace(machine, **{section: unit}, anchors=Anchors(("a published table",), model, "", ""))


def with_values(machine: Machine, values: Mapping[str, float]) -> Machine:
    """The machine with other values of some quantities."""
    for path, value in values.items():
        machine = machine.varied(path, value)
    return machine


def fitted(machine: Machine, paths: tuple[str, ...], measured_tok_s: Mapping[TableRun, float]) -> Machine:
    """The machine whose quantities at `paths` give as many runs the speeds that were measured.

    Newton's method; a token's time is nearly linear in times and in the reciprocals of rates. Raises ArithmeticError
    if no quantities above zero do.
    """
    quantities = dict(machine.quantities())
    runs, target = list(measured_tok_s), np.array([1 / tok_s for tok_s in measured_tok_s.values()])

    def moved(x: NDArray[np.float64]) -> Machine:
        return with_values(
            machine,
            {path: 1 / value if is_rate(path) else value for path, value in zip(paths, x.tolist(), strict=True)},
        )

    def seconds(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.array([1 / run.tok_s(moved(x)) for run in runs])

    start = [quantities[path].value for path in paths]
    x = np.array([1 / value if is_rate(path) else value for path, value in zip(paths, start, strict=True)])
    for _ in range(NEWTON_STEPS):
        here = seconds(x)
        if np.allclose(here, target, rtol=NEARLY, atol=0):
            break
        steps = np.diag(x * BEYOND)
        slope = np.array([(seconds(x + step) - here) / step.sum() for step in steps]).T
        x = x + np.linalg.solve(slope, target - here)
        if not (x > 0).all():
            raise ArithmeticError(f"{machine.name}: no {' and '.join(paths)} above 0 give these speeds")
    return moved(x)


@dataclass(frozen=True, eq=False)
class Fit:
    """A machine fitted on published speeds, and what it would be had each of them been read lower, or higher."""

    machine: Machine
    moved: tuple[tuple[Machine, Machine], ...]

    def speed(self, run: TableRun) -> Speed:
        """The speed of a run, with the 90% interval of a reading of it.

        Each reading that was fitted on, and the one predicted, is off by `reading_sd`; their squares add up.
        """
        tok_s = run.tok_s(self.machine)
        own = SD_90 * reading_sd()
        below, above = own**2, own**2
        for lower_higher in self.moved:
            moves = [math.log(run.tok_s(machine) / tok_s) for machine in lower_higher]
            below += min(*moves, 0.0) ** 2
            above += max(*moves, 0.0) ** 2
        return Speed(tok_s, tok_s * math.exp(-math.sqrt(below)), tok_s * math.exp(math.sqrt(above)))


class Speed(NamedTuple):
    """Tokens a second, and their 90% interval."""

    tok_s: float
    lo: float
    hi: float


def fit(
    machine: Machine,
    paths: tuple[str, ...],
    measured_tok_s: Mapping[TableRun, float],
    *,
    ranges: Mapping[TableRun, tuple[float, float]] | None = None,
) -> Fit:
    """As `fitted`, with what the luck of a reading does to it. ranges: the ends of those published as ranges."""
    luck = math.exp(SD_90 * reading_sd())
    moved = []
    for run, tok_s in measured_tok_s.items():
        ends = (ranges or {}).get(run, (tok_s / luck, tok_s * luck))
        lower, higher = (fitted(machine, paths, {**measured_tok_s, run: end}) for end in ends)
        moved.append((lower, higher))
    return Fit(fitted(machine, paths, measured_tok_s), tuple(moved))


@cache
def reading_sd() -> float:
    """How far published speeds of one setup differ: their relative standard deviation.

    Of the one setup that is published three times: Qwen3.5-35B-A3B with four experts a token and a bank of 128, in two
    tables, and of 256, which installs the same.
    """
    bank = column("anemll_qwen35_35b_bank", "bank", "decode_tok_s")
    same = [bank["128"], bank["256"], column("anemll_qwen35_35b_topk", "topk", "decode_tok_s")["4"]]
    return float(np.std(same, ddof=1) / np.mean(same))


def is_rate(path: str) -> bool:
    return path.endswith("_gb_s")


def passes_of_run(installs: list[int], misses_per_call: list[float], *, layers: int) -> int:
    """How many forward passes the runs of a table had, each with a routed call in each layer.

    The one number with which all rows' installs give all rows' rounded misses per call. Raises ArithmeticError where
    there is not exactly one.
    """
    found = [
        passes
        for passes in range(1, 2000)
        if all(
            abs(n / (passes * layers) - rounded) <= 0.005 + NEARLY
            for n, rounded in zip(installs, misses_per_call, strict=True)
        )
    ]
    if len(found) != 1:
        raise ArithmeticError(f"{len(found)} numbers of passes fit these rows, expected one: {found[:5]}")
    return found[0]


def predicted(  # a row of the report
    group: str,
    name: str,
    fitted_on: str,
    measured: float | tuple[float, float],
    value: Speed | float,
    *,
    note: str = "",
    quantity: str = "tok/s",
) -> Prediction:
    """A prediction; without an interval if nothing was fitted."""
    slow, fast = measured if isinstance(measured, tuple) else (None, None)
    middle = sum(measured) / 2 if isinstance(measured, tuple) else measured
    tok_s, lo, hi = value if isinstance(value, Speed) else (value, None, None)
    return Prediction(group, name, quantity, fitted_on, middle, slow, fast, tok_s, lo, hi, note)
