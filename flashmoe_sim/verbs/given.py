"""What a user gives as words or objects: traces, models and machines."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

from flashmoe_sim.geometry.hints import hints_of
from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.machine import Machine, OneMachine
from flashmoe_sim.residency.workload import Workload, find_geometry, names_model, prepare
from flashmoe_sim.trace.load import load_trace
from flashmoe_sim.trace.routing import RoutingTrace

Trace: TypeAlias = str | Path | RoutingTrace | Workload
Model: TypeAlias = str | Path | ModelGeometry


def workload_of(trace: Trace, model: Model | None = None, *, lenient: bool = False) -> Workload:
    """The trace with its model: the given one, else the catalogue's, else the sizes recorded in the trace."""
    if isinstance(trace, Workload):
        if model is None:
            return trace
        trace = trace.trace
    if isinstance(model, ModelGeometry):
        geometry: ModelGeometry | None = model
    elif isinstance(trace, RoutingTrace):
        geometry = None if model is None else load_model(model)
    else:
        geometry = find_geometry(trace, model)
    if not isinstance(trace, RoutingTrace):
        trace = load_trace(trace, lenient=lenient, hints=hints_of(geometry))
    return prepare(trace, geometry)


def workload_and_model(trace: Trace | None, model: Model | None) -> tuple[Workload | None, ModelGeometry | None]:
    """For a verb that needs only one of them; a model's name in the place of the trace is the model."""
    if model is None and names_model(trace):
        trace, model = None, str(trace)
    if trace is not None:
        return workload_of(trace, model), None
    return None, model_of(model)


def model_of(model: Model | None) -> ModelGeometry | None:
    """A model that is given by name, file or value, if any is."""
    return model if model is None or isinstance(model, ModelGeometry) else load_model(model)


def machine_of(machine: OneMachine) -> Machine:
    """A machine that is given by name, file, parts or value."""
    return machine if isinstance(machine, Machine) else load_machine(machine)
