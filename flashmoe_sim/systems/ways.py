"""Orders of events that differ from an execution model in where the bytes of a miss come from or go to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from flashmoe_sim._jit import inlined
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.machines.machine import Link, Machine, Quantity
from flashmoe_sim.timeline.background import use_link
from flashmoe_sim.timeline.calls import compute_all, install
from flashmoe_sim.timeline.models.base import Call, ExecutionModel
from flashmoe_sim.timeline.models.overlap_prefetch import OverlapPrefetch
from flashmoe_sim.timeline.models.parallel_install import ParallelInstall
from flashmoe_sim.timeline.models.prefill_copy import PrefillCopy
from flashmoe_sim.timeline.models.split_install import SplitInstall
from flashmoe_sim.timeline.names import IS_READ, IS_UPLOAD, IS_WARM_READ, READ, UPLOAD
from flashmoe_sim.timeline.storage import read_family


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
            raise BadInput(
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
