"""Orders of events that differ from an execution model in where the bytes of a miss come from or go to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from flashmoe_sim.machines.machine import Link, Machine, Quantity
from flashmoe_sim.timeline.models.overlap_prefetch import OverlapPrefetch
from flashmoe_sim.timeline.models.prefill_copy import PrefillCopy
from flashmoe_sim.timeline.models.split_install import SplitInstall


@dataclass(frozen=True)
class CopiedFromFile(PrefillCopy):
    """Every miss is copied from the mapped file and computed on the GPU; what RAM does not hold is read first."""

    host_calls: ClassVar[Literal["all", "missing", "none"]] = "all"

    copy_from_tokens: int = 1


@dataclass(frozen=True)
class UploadedFromRam(CopiedFromFile):
    """As CopiedFromFile, from pinned RAM."""

    def link_rate(self, link: Link) -> Quantity:
        return link.pinned_gb_s


@dataclass(frozen=True)
class CopiedFromPack(SplitInstall):
    """As split-install, but a miss is copied from RAM, which holds every expert, before it is uploaded."""

    from_ram: ClassVar[bool] = True


@dataclass(frozen=True)
class HitsThenMisses(PrefillCopy):
    """As prefill-copy, but every call stops for the host, which computes what is missing or finds nothing to do."""

    host_calls: ClassVar[Literal["all", "missing", "none"]] = "all"


@dataclass(frozen=True)
class ReadIntoSlots(OverlapPrefetch):
    """Misses are read straight into slots that the GPU sees, beside the computing of hits."""

    def copies(self, machine: Machine) -> bool:
        return False
