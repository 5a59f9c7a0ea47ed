"""Orders of events that differ from an execution model in where the bytes of a miss come from or go to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import Incomplete
from flashmoe_sim.machines.machine import Link, Machine, Quantity
from flashmoe_sim.timeline.models.base import NEVER, ExecutionModel
from flashmoe_sim.timeline.models.hot_cold import HotCold
from flashmoe_sim.timeline.models.overlap_prefetch import OverlapPrefetch
from flashmoe_sim.timeline.models.parallel_install import ParallelInstall
from flashmoe_sim.timeline.models.prefill_copy import PrefillCopy
from flashmoe_sim.timeline.models.split_install import SplitInstall
from flashmoe_sim.timeline.names import WHOLE, Uploads
from flashmoe_sim.timeline.work import Work


@dataclass(frozen=True)
class CopiedFromFile(PrefillCopy):
    """Every miss is copied from the mapped file and computed on the GPU; misses that are not in RAM are read first."""

    host_calls: ClassVar[Literal["all", "missing", "none"]] = "all"

    copy_from_tokens: int = 1


@dataclass(frozen=True)
class CopiedIfInstalled(CopiedFromFile):
    """Like CopiedFromFile, but misses that a call of few tokens does not install are computed on the CPU beside it."""

    installs_on_gpu: ClassVar[bool] = True

    copy_from_tokens: int = 33

    @property
    def threshold(self) -> int:
        return 0


@dataclass(frozen=True)
class UploadedFromRam(CopiedFromFile):
    """Like CopiedFromFile, from pinned RAM."""

    def link_rate(self, link: Link) -> Quantity:
        return link.pinned_gb_s


@dataclass(frozen=True)
class UploadedByGpu(UploadedFromRam):
    """Like UploadedFromRam, but the GPU finds and uploads misses by itself and never stops for the host."""

    host_calls: ClassVar[Literal["all", "missing", "none"]] = "none"


@dataclass(frozen=True)
class CopiedFromPack(SplitInstall):
    """Like split-install, but a miss is copied from RAM, which holds every expert, before it is uploaded."""

    from_ram: ClassVar[bool] = True


@dataclass(frozen=True)
class UploadedBeside(SplitInstall):
    """Like split-install, but reads go on while a tensor family is uploaded; the call waits for all uploads."""

    uploads: ClassVar[Uploads] = "beside-reads"


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


@dataclass(frozen=True)
class SharedMisses(HotCold):
    """Like hot-cold, but a share of a call's misses is uploaded and computed on the GPU after the hits; none is kept.
    Misses of calls of many tokens are uploaded while the GPU computes.

    share: of the misses, in 256ths, rounded down to whole experts.
    """

    uploads: ClassVar[Uploads] = "while-computing"
    waits_for_installs: ClassVar[bool] = False

    share: int = 0

    @property
    def uploaded_share(self) -> int:
        return self.share

    def brought_in(self, work: Work) -> NDArray[np.int32]:
        return np.maximum(super().brought_in(work), work.misses * self.share // WHOLE).astype(np.int32)


@dataclass(frozen=True)
class FilledBehind(HotCold):
    """Like hot-cold, but experts that a call installs are uploaded behind it, and nothing waits for them."""

    waits_for_installs: ClassVar[bool] = False


@dataclass(frozen=True)
class OwnTier(HotCold):
    """Like hot-cold, one lane after the other, and with a tier in RAM of its own, so that reads may bypass the page
    cache.
    """

    min_parallel: int = NEVER

    def check(self, machine: Machine, *, direct_io: bool) -> None:
        super().check(machine, direct_io=False)
