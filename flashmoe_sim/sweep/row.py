"""One row of results: its identity, its counts, and its timing."""

from __future__ import annotations

from typing import Any

from flashmoe_sim.ceilings.bottleneck import bottleneck
from flashmoe_sim.schema import RESULT_COLUMNS, TIMING
from flashmoe_sim.sweep.task import Task
from flashmoe_sim.timeline.timed import Timed
from flashmoe_sim.timeline.work import INTERVAL_STEPS, last_steps


def seconds(task: Task, timed: Timed | None) -> dict[str, Any]:
    """The columns of schema.TIMING for a task with a machine.

    timed: None if the model does not fit the machine.
    """
    assert task.machine is not None
    assert task.conditions is not None
    execution = task.conditions.execution
    known: dict[str, Any] = {"bottleneck": "does-not-fit"}
    if timed is not None:
        some = last_steps(timed.work, INTERVAL_STEPS)
        known = timed.as_json() | {"bottleneck": bottleneck(some, timed.costs, execution).kind}
    known |= {"machine": task.machine.name, "execution": execution.name}
    return {column.name: known[column.name] for column in TIMING if column.name in known}


def row_of(task: Task, known: dict[str, Any], *, best: dict[str, Any] | None = None) -> dict[str, Any]:
    """All columns of schema.RESULT_COLUMNS, in their order; None if unknown.

    known: the combined results of `Counts.total` and `seconds`. best: the former, of the optimum in the same bank.
    """
    row = task.identity() | known
    if best is not None:
        row |= {"best_hit_rate": best["hit_rate"], "best_bytes_per_token": best["bytes_per_token"]}
    return {column.name: row.get(column.name) for column in RESULT_COLUMNS}
