"""Steps of a routed call that execution models share.

Each function adds the time that passes to the parts of the call, f64 [N_PARTS], and returns the time of its end. Parts
are differences of the clock, so that they add up to the time passed whatever the clock shows.
"""

from __future__ import annotations

from typing import Any

from flashmoe_sim._jit import inlined
from flashmoe_sim.timeline.background import use_link
from flashmoe_sim.timeline.names import (
    EXPERTS,
    HOST,
    IS_EXPERTS,
    IS_INSTALL,
    IS_READ,
    IS_RESUME,
    IS_UPLOAD,
    IS_WARM_READ,
    ON_COMPUTE,
    ON_HOST,
    ON_STORAGE,
    READ,
    UPLOAD,
)
from flashmoe_sim.timeline.state import note, work_on


@inlined
def compute(sim: Any, call: Any, parts: Any, begin: float, n: int) -> float:
    """Compute n experts on the computing unit."""
    if n == 0:
        return begin
    end: float = work_on(sim, ON_COMPUTE, IS_EXPERTS, call.number, begin, n * call.expert_s)
    parts[EXPERTS] += end - begin
    return end


@inlined
def compute_all(sim: Any, call: Any, parts: Any, begin: float) -> float:
    """Compute all experts of a call; a call that waited for misses resumes first."""
    if call.misses > 0:
        resumed = work_on(sim, ON_HOST, IS_RESUME, call.number, begin, sim.state[0].resume_s)
        parts[HOST] += resumed - begin
        begin = resumed
    end: float = compute(sim, call, parts, begin, call.requests)
    return end


@inlined
def install(sim: Any, call: Any, parts: Any, begin: float, n: int) -> float:
    """Do n installs on the host."""
    if n == 0:
        return begin
    end: float = work_on(sim, ON_HOST, IS_INSTALL, call.number, begin, n * sim.state[0].install_s)
    parts[HOST] += end - begin
    return end


@inlined
def upload(sim: Any, call: Any, parts: Any, begin: float, n: int, upload_s: float) -> float:
    """Upload n experts over the link, which is free."""
    if n == 0 or upload_s == 0.0:
        return begin
    end: float = use_link(sim, begin, begin + n * upload_s, IS_UPLOAD, call.number)
    parts[UPLOAD] += end - begin
    return end


@inlined
def read_one_by_one(sim: Any, call: Any, parts: Any, begin: float, upload_s: float) -> float:
    """Serve each miss in turn: its chunks one after another on lane 0, its upload if that takes time, its install."""
    clock = begin
    for i in range(call.misses):
        is_warm = int(i >= call.misses - call.warm)
        service_s, kind = sim.read_s[is_warm, call.row, 0], IS_WARM_READ if is_warm else IS_READ
        if i < call.fills:
            service_s += sim.rows[call.row].fill_s
        read_from = clock
        for _ in range(sim.rows[call.row].chunks):
            note(sim, ON_STORAGE, 0, kind, call.number, clock, clock + service_s)
            clock += service_s
        sim.busy[ON_STORAGE] += sim.rows[call.row].chunks * service_s
        parts[READ] += clock - read_from
        clock = install(sim, call, parts, upload(sim, call, parts, clock, 1, upload_s), 1)
    return clock
