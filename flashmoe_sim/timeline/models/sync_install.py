"""Misses one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from flashmoe_sim._jit import inlined
from flashmoe_sim.timeline.calls import compute_all, read_one_by_one
from flashmoe_sim.timeline.models.base import Call, ExecutionModel


@inlined
def serve(sim: Any, call: Call, parts: Any) -> float:
    usable = read_one_by_one(sim, call, parts, call.ready, sim.rows[call.row].upload_s)
    end: float = compute_all(sim, call, parts, usable)
    return end


@dataclass(frozen=True)
class SyncInstall(ExecutionModel):
    """Each miss is read, uploaded and installed before the next is read. Then all experts are computed."""

    name: ClassVar[str] = "sync-install"
    describes: ClassVar[str] = "engines that read with one thread"
    serve: ClassVar[Any] = serve
