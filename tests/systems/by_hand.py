"""Systems on a few decoded calls that are written by hand."""

from __future__ import annotations

import numpy as np

from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.residency.replay import Replayed
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.systems.base import Case, System
from flashmoe_sim.timeline.timed import Timed, time_replay
from tests.residency.builders import Call, trace_of


def workload_of(calls: list[Call], model: ModelGeometry) -> Workload:
    trace = trace_of(calls, model.layers[0].n_experts)
    return prepare(trace.with_(phase=np.full(len(calls), 2, np.uint8)), model)


def replayed_by(system: System, calls: list[Call], case: Case) -> Replayed:
    return system.replay(system.prepared(workload_of(calls, case.model)), system.plan(case).setup)


def timed_by(system: System, calls: list[Call], case: Case) -> Timed:
    workload, plan = workload_of(calls, case.model), system.plan(case)
    replayed = system.replay(workload, plan.setup)
    return time_replay(workload, replayed, plan.machine, plan.conditions(case), interval=False)


def misses_of(replayed: Replayed) -> list[int]:
    return replayed.stream.misses.tolist()  # type: ignore[no-any-return]
