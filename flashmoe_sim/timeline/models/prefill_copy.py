"""Batches copied to the GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from flashmoe_sim._jit import inlined
from flashmoe_sim.timeline.background import claim, upload_items
from flashmoe_sim.timeline.models._in_ram import InRam, copied, two_lanes, wait_for_items
from flashmoe_sim.timeline.models.base import Call


@inlined
def serve(sim: Any, call: Call, parts: Any) -> float:
    if call.n_tokens >= call.copies_from:
        all_computed: float = copied(sim, call, parts)
        return all_computed
    late = claim(sim, call.number, call.ready, False)
    uploaded = max(call.ready, upload_items(sim, late, sim.rows[call.row].upload_s, call.number))
    usable = wait_for_items(sim, call, parts, late, call.ready, uploaded)
    end: float = two_lanes(sim, call, parts, usable, late, call.requests + 1, call.requests - call.misses)
    return end


@dataclass(frozen=True)
class PrefillCopy(InRam):
    """Calls of many tokens copy missing experts to the GPU. Smaller calls compute them in RAM after the hits.

    A call without misses does not stop for the host, for example in a layer whose experts are all on the GPU.
    """

    name: ClassVar[str] = "prefill-copy"
    describes: ClassVar[str] = "llama.cpp with experts placed on the CPU"
    host_calls: ClassVar[Literal["all", "missing", "none"]] = "missing"
    serve: ClassVar[Any] = serve

    copy_from_tokens: int = 32
    pinned: bool = False
