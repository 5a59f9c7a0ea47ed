"""One row of results: who it is, and what was counted."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Any

from flashmoe_sim.ceilings.bottleneck import bottleneck
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.residency.counts import Counts
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.schema import RESULT_COLUMNS, TIMING
from flashmoe_sim.sweep.strong_id import strong_id
from flashmoe_sim.timeline.assemble import Conditions
from flashmoe_sim.timeline.timed import INTERVAL_STEPS, Timed, last_steps


@dataclass(frozen=True)
class OnMachine:
    """What the seconds of a row are of, and its columns of schema.TIMING."""

    machine: Machine
    conditions: Conditions
    columns: dict[str, Any]

    @classmethod
    def of(cls, machine: Machine, conditions: Conditions, timed: Timed | None) -> OnMachine:
        """timed: None where the model does not fit the machine."""
        columns = {"machine": machine.name, "execution": conditions.execution.name}
        known: dict[str, Any] = {"bottleneck": "does-not-fit"}
        if timed is not None:
            some = last_steps(timed.work, INTERVAL_STEPS)
            known = timed.as_json() | {"bottleneck": bottleneck(some, timed.costs, conditions.execution).kind}
        columns |= {column.name: known[column.name] for column in TIMING if column.name in known}
        return cls(machine, conditions, columns)


@cache
def _version() -> str:
    return version("flashmoe-sim")


def identity(
    workload: Workload, setup: Setup, *, machine: Machine | None = None, conditions: Conditions | None = None
) -> dict[str, Any]:
    """The columns of schema.IDENTITY; equal ids mean equal results.

    machine, conditions: for results with seconds, what the seconds are of.
    """
    known = {
        "trace_id": workload.trace.content_id,
        "policy": setup.policy.spec,
        "contract": setup.contract,
        "prefetch": setup.prefetch.spec,
        "scope": setup.scope,
        "bank": str(setup.bank),
        "io_split": setup.io_split,
        "version": _version(),
    }
    model = workload.geometry.name if workload.geometry else None
    row_id = strong_id(workload, setup, machine, conditions)
    return {"id": row_id, "trace": workload.trace.name, "model": model, **known}


def result_row(
    workload: Workload, setup: Setup, counts: Counts, *, best: Counts | None, on: OnMachine | None = None
) -> dict[str, Any]:
    """All columns of schema.RESULT_COLUMNS, in their order; None where not known.

    on: the machine that the seconds are of.
    """
    if on is None:
        row = identity(workload, setup) | counts.total()
    else:
        row = identity(workload, setup, machine=on.machine, conditions=on.conditions) | counts.total() | on.columns
    if best is not None:
        ceiling = best.total()
        row |= {"best_hit_rate": ceiling["hit_rate"], "best_bytes_per_token": ceiling["bytes_per_token"]}
    return {column.name: row.get(column.name) for column in RESULT_COLUMNS}
