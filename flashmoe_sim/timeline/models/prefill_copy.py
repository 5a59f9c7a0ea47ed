"""Batches copied to the GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim._jit import inlined
from flashmoe_sim.machines.machine import Link, Quantity
from flashmoe_sim.timeline.background import claim, upload_items
from flashmoe_sim.timeline.calls import compute, install
from flashmoe_sim.timeline.models._in_ram import InRam, two_lanes, wait_for_items
from flashmoe_sim.timeline.models.base import Call
from flashmoe_sim.timeline.storage import arrive, read_batch
from flashmoe_sim.timeline.work import Work


@inlined
def serve(sim: Any, call: Call, parts: Any) -> float:
    costs, stored = sim.rows[call.row], call.misses - call.warm
    copying = call.n_tokens >= call.threshold
    late = claim(sim, call.number, call.ready, copying and stored > 0)
    items, read = late, call.ready
    if copying:
        items += call.misses
        if stored > 0:
            begin = max(call.ready, sim.state[0].storage_free)
            read = read_batch(sim, late, stored, 0, call.fills, costs.chunks, call.row, begin, call.number)
            sim.state[0].storage_free = read
        for item in range(late + stored, items):
            arrive(sim, item, call.ready)
    uploaded = max(read, upload_items(sim, items, costs.upload_s, call.number))
    usable = wait_for_items(sim, call, parts, late, read, uploaded)
    if copying:
        installed = install(sim, call, parts, usable, call.installs)
        all_computed: float = compute(sim, call, parts, installed, call.requests)
        return all_computed
    end: float = two_lanes(sim, call, parts, usable, late, call.requests + 1, call.requests - call.misses)
    return end


@dataclass(frozen=True)
class PrefillCopy(InRam):
    """Calls of many tokens copy missing experts to the GPU. Smaller calls compute them in RAM after the hits.

    A call without misses does not stop for the host, for example in a layer whose experts are all on the GPU.
    copy_from_tokens: tokens of a call from which its misses are copied to the GPU. pinned: whether the experts in RAM
    are in pinned buffers, as llama.cpp has them without mmap, and not in a mapped file.
    """

    name: ClassVar[str] = "prefill-copy"
    describes: ClassVar[str] = "llama.cpp with experts placed on the CPU"
    host_calls: ClassVar[Literal["all", "missing", "none"]] = "missing"
    serve: ClassVar[Any] = serve

    copy_from_tokens: int = 32
    pinned: bool = False

    @property
    def threshold(self) -> int:
        return self.copy_from_tokens

    def link_rate(self, link: Link) -> Quantity:
        return link.pinned_gb_s if self.pinned else link.pageable_gb_s

    def brought_in(self, work: Work) -> NDArray[np.int32]:
        copied = work.n_tokens >= self.copy_from_tokens
        return np.where(copied, work.misses, super().brought_in(work)).astype(np.int32)
