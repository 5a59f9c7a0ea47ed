"""Orders of events that differ from an execution model in where the bytes of a miss come from or go to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim._jit import inlined
from flashmoe_sim.io.errors import Incomplete
from flashmoe_sim.machines.machine import Link, Machine, Quantity
from flashmoe_sim.timeline.background import claim, read_before, upload_items, upload_now, use_link
from flashmoe_sim.timeline.calls import compute, compute_all, install
from flashmoe_sim.timeline.models._in_ram import wait_for_items
from flashmoe_sim.timeline.models.base import Call, ExecutionModel
from flashmoe_sim.timeline.models.hot_cold import HotCold
from flashmoe_sim.timeline.models.overlap_prefetch import OverlapPrefetch
from flashmoe_sim.timeline.models.parallel_install import ParallelInstall
from flashmoe_sim.timeline.models.prefill_copy import PrefillCopy
from flashmoe_sim.timeline.models.split_install import SplitInstall
from flashmoe_sim.timeline.names import (
    COLD_LANE,
    IS_COLD_EXPERTS,
    IS_MERGE,
    IS_READ,
    IS_UPLOAD,
    IS_WARM_READ,
    MERGE,
    ON_COLD_LANE,
    ON_COMPUTE,
    READ,
    UPLOAD,
)
from flashmoe_sim.timeline.state import work_on
from flashmoe_sim.timeline.storage import Batch, read_batch, read_family
from flashmoe_sim.timeline.work import Work

WHOLE = 256  # parts of the misses, as Strata counts the share of them that it uploads


@dataclass(frozen=True)
class CopiedFromFile(PrefillCopy):
    """Every miss is copied from the mapped file and computed on the GPU; misses that are not in RAM are read first."""

    host_calls: ClassVar[Literal["all", "missing", "none"]] = "all"

    copy_from_tokens: int = 1


@dataclass(frozen=True)
class UploadedFromRam(CopiedFromFile):
    """Like CopiedFromFile, from pinned RAM."""

    def link_rate(self, link: Link) -> Quantity:
        return link.pinned_gb_s


@dataclass(frozen=True)
class CopiedFromPack(SplitInstall):
    """Like split-install, but a miss is copied from RAM, which holds every expert, before it is uploaded."""

    from_ram: ClassVar[bool] = True


@inlined
def serve_uploading_beside(sim: Any, call: Call, parts: Any) -> float:
    clock, uploaded = call.ready, call.ready
    for i in range(call.misses):
        warm = i >= call.misses - call.warm
        for f in range(sim.families.shape[1]):
            kind = IS_WARM_READ if warm else IS_READ
            read = read_family(sim, call.row, f, warm, i < call.fills, clock, kind, call.number)
            parts[READ] += read - clock
            clock = read
            begin = max(uploaded, read)
            uploaded = use_link(sim, begin, begin + sim.families[call.row, f].upload_s, IS_UPLOAD, call.number)
    there: float = max(clock, uploaded)
    parts[UPLOAD] += there - clock
    end: float = compute_all(sim, call, parts, install(sim, call, parts, there, call.misses))
    return end


@dataclass(frozen=True)
class UploadedBeside(SplitInstall):
    """Like split-install, but reads go on while a tensor family is uploaded; the call waits for all uploads."""

    serve: ClassVar[Any] = serve_uploading_beside


@dataclass(frozen=True)
class BankInRam(ExecutionModel):
    """Slots are in RAM, where the CPU computes their experts; the GPU computes the rest, and nothing is uploaded."""

    experts_on_cpu: ClassVar[bool] = True

    def check(self, machine: Machine, *, direct_io: bool) -> None:
        if machine.cpu is None or machine.cpu.weights_gb_s is None:
            raise Incomplete(
                f"machine {machine.name}: the CPU computes the experts of a bank in RAM, and its file has no "
                "cpu.weights_gb_s; add it"
            )


@dataclass(frozen=True)
class SplitInstallInRam(BankInRam, SplitInstall):
    """Like split-install."""


@dataclass(frozen=True)
class ParallelInstallInRam(BankInRam, ParallelInstall):
    """Like parallel-install."""


@dataclass(frozen=True)
class CopiedFromPackInRam(BankInRam, CopiedFromPack):
    """Like CopiedFromPack."""


@dataclass(frozen=True)
class HitsThenMisses(PrefillCopy):
    """Like prefill-copy, but every call stops for the host, which computes misses or finds nothing to do."""

    host_calls: ClassVar[Literal["all", "missing", "none"]] = "all"


@dataclass(frozen=True)
class ReadIntoSlots(OverlapPrefetch):
    """Misses are read straight into slots that the GPU sees, while hits are computed."""

    def copies(self, machine: Machine) -> bool:
        return False


@inlined
def streamed(sim: Any, call: Call, parts: Any) -> float:
    """Compute every expert on the GPU while the others are uploaded from RAM; the call waits for the slower."""
    computed: float = compute(sim, call, parts, call.ready, call.requests)
    uploaded, upload_s = computed, sim.rows[call.row].upload_s
    for _ in range(call.misses):
        uploaded = max(uploaded, upload_now(sim, call.ready, upload_s, call.number))
    parts[UPLOAD] += uploaded - computed
    return uploaded


@inlined
def serve_sharing(sim: Any, call: Call, parts: Any) -> float:
    if call.n_tokens >= call.copies_from:
        all_computed: float = streamed(sim, call, parts)
        return all_computed
    late = claim(sim, call.number, call.ready, False)
    uploaded = max(call.ready, upload_items(sim, late, 0.0, call.number))
    begin = wait_for_items(sim, call, parts, late, call.ready, uploaded)
    there, stored = begin, call.misses - call.warm
    if stored > 0:
        read_before(sim, begin, True)
        there = read_batch(sim, call, Batch(late, stored, 0, call.fills, sim.rows[call.row].chunks), begin)
        sim.state[0].storage_free = there
    hot_end: float = compute(sim, call, parts, begin, call.requests - call.misses)
    if call.misses == 0:
        return hot_end
    fetched = call.misses * call.threshold // WHOLE
    cold_s = (call.misses - fetched) * call.cold_expert_s
    cold_end = work_on(sim, ON_COLD_LANE, IS_COLD_EXPERTS, call.number, there, cold_s)
    read_end = max(hot_end, there)
    parts[READ] += read_end - hot_end
    arrived = read_end
    upload_s = sim.rows[call.row].upload_s
    if upload_s > 0.0:
        for _ in range(fetched):
            arrived = max(arrived, upload_now(sim, there, upload_s, call.number))
    parts[UPLOAD] += arrived - read_end
    gpu_end = compute(sim, call, parts, arrived, fetched)
    both_end: float = max(gpu_end, cold_end)
    parts[COLD_LANE] += both_end - gpu_end
    if fetched == call.misses or call.requests - call.misses + fetched == 0:
        return both_end
    merged: float = work_on(sim, ON_COMPUTE, IS_MERGE, call.number, both_end, sim.state[0].merge_s)
    parts[MERGE] += merged - both_end
    return merged


@dataclass(frozen=True)
class SharedMisses(HotCold):
    """Like hot-cold, but a share of a call's misses is uploaded and computed on the GPU after the hits; none is kept.
    Misses of calls of many tokens are uploaded while the GPU computes.

    share: of the misses, in 256ths, rounded down to whole experts.
    """

    serve: ClassVar[Any] = serve_sharing

    share: int = 0

    @property
    def threshold(self) -> int:
        return self.share

    def brought_in(self, work: Work) -> NDArray[np.int32]:
        return np.maximum(super().brought_in(work), work.misses * self.share // WHOLE).astype(np.int32)


@dataclass(frozen=True)
class FilledBehind(HotCold):
    """Like hot-cold, but experts that a call installs are uploaded behind it, and nothing waits for them."""

    waits_for_installs: ClassVar[bool] = False
