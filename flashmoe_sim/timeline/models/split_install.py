"""Misses one by one, and each one tensor family after another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from flashmoe_sim._jit import inlined
from flashmoe_sim.timeline.background import issue, use_link
from flashmoe_sim.timeline.calls import compute_all, install, upload
from flashmoe_sim.timeline.models.base import Call, ExecutionModel
from flashmoe_sim.timeline.names import IS_READ, IS_READ_AHEAD, IS_UPLOAD_AHEAD, IS_WARM_READ, READ
from flashmoe_sim.timeline.storage import read_family


@inlined
def serve(sim: Any, call: Call, parts: Any) -> float:
    clock = call.ready
    for i in range(call.misses):
        warm = i >= call.misses - call.warm
        for f in range(sim.families.shape[1]):
            kind = IS_WARM_READ if warm else IS_READ
            read = read_family(sim, call.row, f, warm, i < call.fills, clock, kind, call.number)
            parts[READ] += read - clock
            clock = upload(sim, call, parts, read, 1, sim.families[call.row, f].upload_s)
        clock = install(sim, call, parts, clock, 1)
    end: float = compute_all(sim, call, parts, clock)
    return end


@inlined
def after(sim: Any, number: int, time: float) -> float:
    first, clock = sim.state[0].issued, time
    issue(sim, number, time, False)
    sim.state[0].read = sim.state[0].issued
    for i in range(first, sim.state[0].issued):
        expert = sim.ahead[i]
        for f in range(sim.families.shape[1]):
            clock = read_family(sim, expert.row, f, expert.warm != 0, expert.cold != 0, clock, IS_READ_AHEAD, number)
            upload_s = sim.families[expert.row, f].upload_s
            if upload_s > 0.0:
                clock = use_link(sim, clock, clock + upload_s, IS_UPLOAD_AHEAD, number)
    return clock


@dataclass(frozen=True)
class SplitInstall(ExecutionModel):
    """Misses are served in turn, each one tensor family after another: the family's chunks are read together, then
    uploaded. Then all experts are computed.

    Prefetches are read and uploaded in the same way while the next call waits.
    """

    name: ClassVar[str] = "split-install"
    describes: ClassVar[str] = "the patched llama.cpp runtime by default"
    by_family: ClassVar[bool] = True
    serve: ClassVar[Any] = serve
    after: ClassVar[Any] = after
