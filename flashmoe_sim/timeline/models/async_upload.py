"""All misses of a call at once, each chunk uploaded as it arrives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from flashmoe_sim._jit import inlined
from flashmoe_sim.timeline.background import upload_items
from flashmoe_sim.timeline.calls import compute_all, install
from flashmoe_sim.timeline.models.base import Call, ExecutionModel
from flashmoe_sim.timeline.names import READ, UPLOAD
from flashmoe_sim.timeline.storage import Batch, read_batch


@inlined
def serve(sim: Any, call: Call, parts: Any) -> float:
    chunks = sim.rows[call.row].chunks
    items = call.misses * chunks
    read = read_batch(sim, call, Batch(0, items, call.warm * chunks, call.fills * chunks, 1), call.ready)
    uploaded = max(read, upload_items(sim, items, sim.rows[call.row].upload_s / chunks, call.number))
    parts[READ] += read - call.ready
    parts[UPLOAD] += uploaded - read
    end: float = compute_all(sim, call, parts, install(sim, call, parts, uploaded, call.misses))
    return end


@dataclass(frozen=True)
class AsyncUpload(ExecutionModel):
    """As `parallel-install`, but each chunk is uploaded as soon as it has been read."""

    name: ClassVar[str] = "async-upload"
    describes: ClassVar[str] = "the patched llama.cpp runtime with parallel slot reads and an io-split of 1"
    serve: ClassVar[Any] = serve
