"""CallSteps of a routed call that execution models share.

Each function adds the time that passes to the parts of the call, f64 [N_PARTS], and returns the time of its end. Parts
are differences of the clock, so that they add up to the time passed whatever the clock shows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from flashmoe_sim._jit import inlined
from flashmoe_sim.timeline.background import use_link
from flashmoe_sim.timeline.names import (
    EXPERTS,
    HOST,
    IS_EXPERTS,
    IS_INSTALL,
    IS_RESUME,
    IS_UPLOAD,
    LATE,
    ON_COMPUTE,
    ON_HOST,
    READ,
    UPLOAD,
)
from flashmoe_sim.timeline.state import work_on


class CallSteps(NamedTuple):
    """What the loop reads of an execution model, as in `ExecutionModel`.

    uploads: a place in names.UPLOADS. two_lanes: the CPU computes misses of calls below `copies_from` tokens, and the
    GPU hits; if `installs_on_gpu`, misses that are installed as well. resumes: the host starts the GPU again after
    misses. share: of the misses, `uploaded_share`.
    """

    uploads: int
    reads: bool
    one_by_one: bool
    by_family: bool
    by_chunk: bool
    in_background: bool
    in_place: bool
    beside_compute: bool
    two_lanes: bool
    installs_on_gpu: bool
    padded: bool
    resumes: bool
    threshold: int
    copies_from: int
    share: int


class Call(NamedTuple):
    """One routed call, as it is served.

    number, row, n_tokens, requests, misses, warm, fills, installs: as in `Work`; `fills` is its `cold`, and there
    are no misses if the model reads nothing.
    ready: when its slots are known. expert_s, cold_expert_s: seconds of one expert for its tokens, on the computing
    unit and on the CPU beside a GPU. steps: of the model.
    """

    number: int
    row: int
    n_tokens: int
    requests: int
    misses: int
    warm: int
    fills: int
    installs: int
    ready: float
    expert_s: float
    cold_expert_s: float
    steps: CallSteps


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
    if call.misses > 0 and call.steps.resumes:
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
def wait_for_items(sim: Any, call: Any, parts: Any, late: int, arrived: float, uploaded: float) -> float:
    """Wait for the first `late` items, then for the misses after them, read by `arrived` and usable from `uploaded`."""
    late_end = call.ready
    for item in range(late):
        late_end = max(late_end, sim.items[item].uploaded)
    parts[LATE] += late_end - call.ready
    read_end = max(late_end, arrived)
    parts[READ] += read_end - late_end
    parts[UPLOAD] += uploaded - read_end
    return uploaded
