"""From what a person asks of `sim recommend`, in words or as objects, to a recommendation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Unpack

from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.systems.told import ALL, AskedMemory, OneSystem, told
from flashmoe_sim.tune.objective import Objective
from flashmoe_sim.tune.recommend import Recommendation, recommend


def recommend_as_told(
    *,
    workload: Workload | None,
    model: ModelGeometry | None,
    machine: Machine,
    systems: OneSystem | Iterable[OneSystem] = ALL,
    objective: Objective | None = None,
    progress: Callable[[int, int], None] | None = None,
    **memory: Unpack[AskedMemory],
) -> Recommendation:
    """Recommend for a workload, or for a model alone with a borrowed trace; see `systems.told.told`.

    Raises BadInput for words that mean nothing, for no model at all, for a trace without all layers of its model, and
    if nothing can run there.
    """
    on = told(workload=workload, model=model, machine=machine, systems=systems, **memory)
    assert on.workload is not None
    return recommend(
        on.workload,
        on.case,
        on.systems,
        objective=objective,
        borrowed=bool(on.borrowed),
        notes=on.notes,
        progress=progress,
    )
