"""Hits before misses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from flashmoe_sim._jit import inlined
from flashmoe_sim.timeline.calls import Call, compute
from flashmoe_sim.timeline.models.base import ExecutionModel
from flashmoe_sim.timeline.serve import one_by_one


@inlined
def serve(sim: Any, call: Call, parts: Any) -> float:
    hits_end = compute(sim, call, parts, call.ready, call.requests - call.misses)
    usable = one_by_one(sim, call, parts, hits_end)
    end: float = compute(sim, call, parts, usable, call.misses)
    return end


@dataclass(frozen=True)
class HitsFirst(ExecutionModel):
    """Hits are computed, then misses are read, uploaded and installed one by one, then they are computed."""

    name: ClassVar[str] = "hits-first"
    describes: ClassVar[str] = "no system: an example"
    serve: ClassVar[Any] = serve
