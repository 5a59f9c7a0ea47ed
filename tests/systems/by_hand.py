"""Systems on a few decoded calls that are written by hand.

TWO_SIZES: two layers of four experts of 1 MiB and 3 MiB, one token routed to two; dense weights of 1 GiB.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.sizes import GIB, MIB
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.residency.replay import Replayed
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.systems.base import Case, Share, System
from flashmoe_sim.systems.published import PublishedRun
from flashmoe_sim.timeline.from_replay import Timed, time_replay
from flashmoe_sim.timeline.models.base import ExecutionModel
from flashmoe_sim.timeline.names import PARTS
from flashmoe_sim.timeline.run import simulate
from tests.residency.builders import Call, geometry_of, trace_of
from tests.timeline.cases import costs_of, work_of

TWO_SIZES = replace(geometry_of({0: MIB, 1: 3 * MIB}, 4), top_k=2, dense_bytes=GIB)
# Seconds of an expert: 1/4 on the GPU, 1/2 on the CPU, 3/4 over the link; 1 s of dense work, 1/16 s to join the lanes.
COSTS = {"chunks": 2, "chunk_s": 1.0, "upload_s": 0.75, "expert_s": 0.25, "cold_expert_s": 0.5, "merge_s": 0.0625}


def on_card(*, arch: str, gpu_mib: int = 24 * 1024, link_gb_s: float | None = None, **given: Any) -> Case:
    """TWO_SIZES on an RTX 4090 with so much memory, 2048 MiB of which dense weights and buffers take.

    given: of the machine.
    """
    machine = load_machine("rtx-4090").varied("gpu.memory_gib", gpu_mib / 1024)
    if link_gb_s is not None:
        machine = machine.varied("link.pinned_gb_s", link_gb_s)
    return Case(replace(TWO_SIZES, arch=arch), replace(machine, **given), 0, 4096)


def taken(shares: Sequence[Share], where: str) -> dict[str, int]:
    return {share.what: share.size_bytes for share in shares if share.where == where}


def published(model: ModelGeometry, **told: Any) -> PublishedRun:
    return PublishedRun(
        **{"where": "row", "engine": "", "build": "", "strategy": "", "flags": "", "model": model, **told}
    )


def parts_of(execution: ExecutionModel, **call: int) -> dict[str, float]:
    """The parts of a call of four experts, of which three are missed, that are not 0, without dense work."""
    work = work_of([{"requests": 4, "misses": 3, "warm": 3, **call}])
    timeline = simulate(work, costs_of(lanes=2, dense_s=1.0, **COSTS), execution)
    parts = dict(zip(PARTS, timeline.parts[0].tolist(), strict=True))
    assert sum(parts.values()) == timeline.end[0]
    assert parts.pop("dense") == 1.0
    return {name: seconds for name, seconds in parts.items() if seconds}


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
