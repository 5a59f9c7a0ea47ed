"""From the arguments of `sim recommend`, as words or objects, to a recommendation, or to one for each pair."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Unpack

from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.systems.told import ALL, DEFAULT_CONTEXT, AskedMemory, OneSystem, told
from flashmoe_sim.tune.many import Cells, over_machines, over_models
from flashmoe_sim.tune.objective import Objective
from flashmoe_sim.tune.recommend import Purchase, Recommendation, recommend


def recommend_as_told(
    *,
    workload: Workload | None,
    model: ModelGeometry | None,
    machine: Machine,
    systems: OneSystem | Iterable[OneSystem] = ALL,
    objective: Objective | None = None,
    others: Sequence[Workload] = (),
    purchase: Purchase | None = None,
    progress: Callable[[int, int], None] | None = None,
    **memory: Unpack[AskedMemory],
) -> Recommendation:
    """Recommend for a workload, or for a model alone with a borrowed trace; see `systems.told.told`.

    Raises BadInput for unknown words, without any model, for a trace that lacks layers of its model, and if nothing can
    run.
    """
    if objective is not None:
        memory["context"] = _held(objective, memory, workload.geometry if workload is not None else model)
    on = told(workload=workload, model=model, machine=machine, systems=systems, **memory)
    assert on.workload is not None
    return recommend(
        on.workload,
        on.case,
        on.systems,
        objective=objective,
        borrowed=bool(on.borrowed),
        others=others,
        purchase=purchase,
        notes=on.notes,
        progress=progress,
    )


def _held(objective: Objective, memory: AskedMemory, model: ModelGeometry | None) -> int | None:
    """The context: as asked, or else what prompt and answer need if that is more than the default."""
    asked = memory.get("context")
    if asked and asked < objective.tokens:
        raise BadInput(f"--context {asked}: prompt and answer have {objective.tokens:,} tokens; give at least as many")
    if asked is not None or memory.get("kv") is not None or model is None or model.attention is None:
        return asked
    return objective.tokens if objective.tokens > DEFAULT_CONTEXT else None


def recommend_for_each(
    *,
    workload: Workload | None,
    models: Sequence[ModelGeometry],
    machines: Sequence[Machine],
    systems: OneSystem | Iterable[OneSystem] = ALL,
    progress: Callable[[int, int], None] | None = None,
    **memory: Unpack[AskedMemory],
) -> Cells:
    """The fastest system for one model on each of the machines, or for each of the models on one machine.

    workload: of the one model, or None; traces are borrowed if there is none.
    Raises BadInput for several models on several machines, and for unknown words.
    """
    if len(models) > 1 and len(machines) > 1:
        raise BadInput("several models on several machines; give one model, or one machine")
    if len(models) > 1:
        on = [
            told(workload=None, model=model, machine=machines[0], systems=systems, may_borrow=False, **memory)
            for model in models
        ]
        return over_models([one.case for one in on], on[0].systems, progress=progress)
    model = next(iter(models), None)
    first = told(workload=workload, model=model, machine=machines[0], systems=systems, must_fit=False, **memory)
    assert first.workload is not None
    return over_machines(
        first.workload, first.case, first.systems, machines, borrowed=bool(first.borrowed), progress=progress
    )
