"""A hot lane and a cold one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from flashmoe_sim._jit import inlined
from flashmoe_sim.timeline.background import claim, upload_items
from flashmoe_sim.timeline.models._in_ram import InRam, copied, two_lanes, wait_for_items
from flashmoe_sim.timeline.models.base import Call


@inlined
def _serve(sim: Any, call: Call, parts: Any, hot: int) -> float:
    if call.n_tokens >= call.copies_from:
        all_computed: float = copied(sim, call, parts)
        return all_computed
    late = claim(sim, call.number, call.ready, False)
    uploaded = max(call.ready, upload_items(sim, late, 0.0, call.number))
    usable = wait_for_items(sim, call, parts, late, call.ready, uploaded)
    end: float = two_lanes(sim, call, parts, usable, late, call.threshold, hot)
    return end


@inlined
def serve(sim: Any, call: Call, parts: Any) -> float:
    end: float = _serve(sim, call, parts, call.requests - call.misses)
    return end


@inlined
def serve_padded(sim: Any, call: Call, parts: Any) -> float:
    end: float = _serve(sim, call, parts, call.requests if call.misses < call.requests else 0)
    return end


@dataclass(frozen=True)
class HotCold(InRam):
    """The GPU computes hits while the CPU computes misses in RAM, and the call waits for the slower lane.

    min_parallel: requests of a call from which its two lanes run side by side.
    """

    name: ClassVar[str] = "hot-cold"
    describes: ClassVar[str] = "forks of llama.cpp with a hot set on the GPU, chosen by a tumbling window or a profile"
    serve: ClassVar[Any] = serve

    min_parallel: int = 2

    @property
    def threshold(self) -> int:
        return self.min_parallel


@dataclass(frozen=True)
class HotColdPadded(HotCold):
    """As `hot-cold`, but the GPU computes an empty expert for each miss if anything hits, and misses of calls of many
    tokens are copied to it.
    """

    name: ClassVar[str] = "hot-cold-padded"
    describes: ClassVar[str] = "a fork of llama.cpp with a hot cache filled from a profile"
    serve: ClassVar[Any] = serve_padded

    copy_from_tokens: int = 256
