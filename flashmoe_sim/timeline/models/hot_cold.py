"""A hot lane and a cold one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from flashmoe_sim._jit import inlined
from flashmoe_sim.timeline.background import claim, upload_items
from flashmoe_sim.timeline.models._in_ram import InRam, two_lanes, wait_for_items
from flashmoe_sim.timeline.models.base import Call


@inlined
def serve(sim: Any, call: Call, parts: Any) -> float:
    late = claim(sim, call.number, call.ready, False)
    uploaded = max(call.ready, upload_items(sim, late, 0.0, call.number))
    usable = wait_for_items(sim, call, parts, late, call.ready, uploaded)
    end: float = two_lanes(sim, call, parts, usable, late, call.threshold)
    return end


@dataclass(frozen=True)
class HotCold(InRam):
    """The GPU computes hits while the CPU computes misses in RAM, and the call waits for the slower lane.

    min_parallel: requests of a call from which its two lanes run side by side.
    """

    name: ClassVar[str] = "hot-cold"
    describes: ClassVar[str] = "forks of llama.cpp with a hot set on the GPU: a tumbling window, or a profile"
    serve: ClassVar[Any] = serve

    min_parallel: int = 2

    @property
    def threshold(self) -> int:
        return self.min_parallel
