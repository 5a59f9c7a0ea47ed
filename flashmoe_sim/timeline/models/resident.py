"""Everything is resident."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from flashmoe_sim._jit import inlined
from flashmoe_sim.timeline.calls import compute
from flashmoe_sim.timeline.models.base import Call, ExecutionModel


@inlined
def serve(sim: Any, call: Call, parts: Any) -> float:
    end: float = compute(sim, call, parts, call.ready, call.requests)
    return end


@dataclass(frozen=True)
class Resident(ExecutionModel):
    """Every expert is resident; nothing is read."""

    name: ClassVar[str] = "resident"
    describes: ClassVar[str] = "any system whose memory holds the whole model"
    reads: ClassVar[bool] = False
    host_calls: ClassVar[Literal["all", "missing", "none"]] = "none"
    reads_ahead: ClassVar[bool] = False
    serve: ClassVar[Any] = serve
