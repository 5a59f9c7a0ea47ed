"""All misses of a call at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from flashmoe_sim._jit import inlined
from flashmoe_sim.timeline.calls import compute_all, install, upload
from flashmoe_sim.timeline.models.base import Call, ExecutionModel
from flashmoe_sim.timeline.names import READ
from flashmoe_sim.timeline.storage import Batch, read_batch


@inlined
def serve(sim: Any, call: Call, parts: Any) -> float:
    chunks, upload_s = sim.rows[call.row].chunks, sim.rows[call.row].upload_s
    clock = read_batch(sim, call, Batch(0, call.misses, call.warm, call.fills, chunks), call.ready)
    parts[READ] += clock - call.ready
    for _ in range(call.misses):
        clock = install(sim, call, parts, upload(sim, call, parts, clock, 1, upload_s), 1)
    end: float = compute_all(sim, call, parts, clock)
    return end


@dataclass(frozen=True)
class ParallelInstall(ExecutionModel):
    """Misses are read together over the lanes, then uploaded and installed in turn. Then all experts are computed."""

    name: ClassVar[str] = "parallel-install"
    describes: ClassVar[str] = "the patched llama.cpp runtime with parallel slot reads"
    serve: ClassVar[Any] = serve
