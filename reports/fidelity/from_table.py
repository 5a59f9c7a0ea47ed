"""Runs that a published table tells of, and machines fitted on some of its rows."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.timeline.assemble import Conditions, Weights, price, weigh
from flashmoe_sim.timeline.execution import EXECUTION_MODELS
from flashmoe_sim.timeline.from_rates import made_work
from flashmoe_sim.timeline.run import simulate
from flashmoe_sim.timeline.timing import Timing, timing_of
from flashmoe_sim.timeline.work import Work
from reports.fidelity.prediction import Prediction

PUBLISHED = Path(__file__).parents[2] / "tests" / "validation" / "published"
NEWTON_STEPS, NEARLY, BEYOND = 6, 1e-9, 1e-3
GIB = 2**30


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
        return self.timing(machine).tok_s


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
    conditions = Conditions(EXECUTION_MODELS[execution], dense_bytes=dense_bytes)
    weights = weigh(geometry.name, tuple(geometry.layers.values()), geometry.dense_bytes, conditions)
    work = made_work(
        layers=len(weights.layers),
        top_k=top_k,
        misses_per_call=misses_per_call,
        page_cache_share=page_cache_share,
    )
    return TableRun(work, weights, conditions)


def with_values(machine: Machine, values: Mapping[str, float]) -> Machine:
    """The machine with other values of some quantities."""
    for path, value in values.items():
        machine = machine.varied(path, value)
    return machine


def fitted(machine: Machine, paths: tuple[str, ...], measured_tok_s: Mapping[TableRun, float]) -> Machine:
    """The machine whose quantities at `paths` give as many runs the speeds that were measured.

    Newton's method; a token's time is nearly linear in times and in the reciprocals of rates. Raises ArithmeticError
    where no quantities above zero do.
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
    tok_s: float,
    *,
    note: str = "",
    quantity: str = "tok/s",
) -> Prediction:
    """A prediction without an interval: two rows fit two numbers exactly, and tell nothing of how sure they are."""
    lo, hi = measured if isinstance(measured, tuple) else (None, None)
    middle = sum(measured) / 2 if isinstance(measured, tuple) else measured
    return Prediction(group, name, quantity, fitted_on, middle, lo, hi, tok_s, None, None, note)
