"""What is common to the models in which the CPU computes misses in RAM, beside a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim._jit import inlined
from flashmoe_sim.io.errors import Conflict, Unsupported
from flashmoe_sim.machines.machine import Link, Machine, Quantity
from flashmoe_sim.timeline.ahead import upload_beside
from flashmoe_sim.timeline.background import claim, read_before, upload_items, upload_now
from flashmoe_sim.timeline.calls import compute, install
from flashmoe_sim.timeline.models.base import NEVER, Call, ExecutionModel
from flashmoe_sim.timeline.names import (
    COLD_LANE,
    IS_COLD_EXPERTS,
    IS_MERGE,
    LATE,
    MERGE,
    ON_COLD_LANE,
    ON_COMPUTE,
    READ,
    UPLOAD,
)
from flashmoe_sim.timeline.state import work_on
from flashmoe_sim.timeline.storage import Batch, arrive, read_batch
from flashmoe_sim.timeline.work import Work


@inlined
def wait_for_items(sim: Any, call: Call, parts: Any, late: int, arrived: float, uploaded: float) -> float:
    """Wait for the first `late` items, then for the misses after them, read by `arrived` and usable from `uploaded`."""
    late_end = call.ready
    for item in range(late):
        late_end = max(late_end, sim.items[item].uploaded)
    parts[LATE] += late_end - call.ready
    read_end = max(late_end, arrived)
    parts[READ] += read_end - late_end
    parts[UPLOAD] += uploaded - read_end
    return uploaded


@inlined
def two_lanes(sim: Any, call: Call, parts: Any, begin: float, late: int) -> float:
    """Compute hits on the GPU and misses on the CPU: in parallel if both have work and the call is large enough.

    Experts for the CPU that are not in RAM are read first, as one batch of items from `late` on, and the cold lane
    begins when all have arrived. Misses that the call installs are uploaded from then on, during the two lanes, and the
    call waits for them. `call.threshold`: the requests from which its lanes run in parallel.
    """
    hot = call.requests - call.misses
    if call.padded and hot > 0:
        hot = call.requests
    hot_end: float = compute(sim, call, parts, begin, hot)
    if call.misses == 0:
        return hot_end
    stored = call.misses - call.warm
    side_by_side = call.misses < call.requests and call.requests >= call.threshold
    there: float = begin if side_by_side else hot_end
    if stored > 0:
        read_before(sim, there, True)
        there = read_batch(sim, call, Batch(late, stored, 0, call.fills, sim.rows[call.row].chunks), there)
        sim.state[0].storage_free = there
    cold_s = call.misses * call.cold_expert_s
    cold_end = work_on(sim, ON_COLD_LANE, IS_COLD_EXPERTS, call.number, there, cold_s)
    both_end: float = max(hot_end, cold_end)
    read_end = max(hot_end, there)
    parts[READ] += read_end - hot_end
    parts[COLD_LANE] += both_end - read_end
    if side_by_side:
        merged: float = work_on(sim, ON_COMPUTE, IS_MERGE, call.number, both_end, sim.state[0].merge_s)
        parts[MERGE] += merged - both_end
        both_end = merged
    uploaded = both_end
    upload_s = sim.rows[call.row].upload_s
    if upload_s > 0.0:
        for _ in range(call.installs):
            uploaded = max(uploaded, upload_now(sim, there, upload_s, call.number))
    parts[UPLOAD] += uploaded - both_end
    installed: float = install(sim, call, parts, uploaded, call.installs)
    return installed


@inlined
def copied(sim: Any, call: Call, parts: Any) -> float:
    """Copy all misses to the GPU, which computes every expert; those that are not in RAM are read first."""
    stored = call.misses - call.warm
    late = claim(sim, call.number, call.ready, stored > 0)
    items, read = late + call.misses, call.ready
    if stored > 0:
        begin = max(call.ready, sim.state[0].storage_free)
        read = read_batch(sim, call, Batch(late, stored, 0, call.fills, sim.rows[call.row].chunks), begin)
        sim.state[0].storage_free = read
    for item in range(late + stored, items):
        arrive(sim, item, call.ready)
    uploaded = max(read, upload_items(sim, items, sim.rows[call.row].upload_s, call.number))
    usable = wait_for_items(sim, call, parts, late, read, uploaded)
    end: float = compute(sim, call, parts, install(sim, call, parts, usable, call.installs), call.requests)
    return end


@inlined
def serve(sim: Any, call: Call, parts: Any) -> float:
    if call.n_tokens >= call.copies_from:
        all_computed: float = copied(sim, call, parts)
        return all_computed
    late = claim(sim, call.number, call.ready, False)
    uploaded = max(call.ready, upload_items(sim, late, 0.0, call.number))
    usable = wait_for_items(sim, call, parts, late, call.ready, uploaded)
    end: float = two_lanes(sim, call, parts, usable, late)
    return end


@dataclass(frozen=True)
class InRam(ExecutionModel):
    """Misses are in RAM, and experts read ahead are only uploaded.

    copy_from_tokens: the fewest tokens of a call whose misses are copied to the GPU; the CPU computes smaller calls'.
    pinned: whether what is uploaded is in pinned buffers, as llama.cpp has it without mmap, and not in a mapped file.
    """

    in_place: ClassVar[bool] = True
    in_background: ClassVar[bool] = True
    serve: ClassVar[Any] = serve
    after: ClassVar[Any] = upload_beside

    copy_from_tokens: int = NEVER
    pinned: bool = True

    @property
    def copies_from(self) -> int:
        return self.copy_from_tokens

    def link_rate(self, link: Link) -> Quantity:
        return link.pinned_gb_s if self.pinned else link.pageable_gb_s

    def check(self, machine: Machine, *, direct_io: bool) -> None:
        if machine.gpu is None or machine.cpu is None or machine.cpu.weights_gb_s is None or machine.memory is None:
            raise Unsupported(
                f"machine {machine.name}: {self.name} computes on a GPU and a CPU and needs [gpu], "
                "[cpu] with weights_gb_s, and [memory]; choose another --execution or another machine"
            )
        if direct_io:
            raise Conflict(
                f"--direct-io: {self.name} uses experts where they lie in RAM, which is the page cache; "
                "leave it out, or choose another --execution"
            )

    def brought_in(self, work: Work) -> NDArray[np.int32]:
        """The misses that are read into RAM, uploaded into a slot, or both."""
        brought = np.maximum(work.misses - work.warm, work.installs)
        return np.where(work.n_tokens >= self.copies_from, work.misses, brought).astype(np.int32)
