"""Crow: slots on the GPU, backed by a tier in pinned RAM, backed by the SSD."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.systems.base import Case, Launch, Plan, Share, llama_words
from flashmoe_sim.systems.execution import UploadedFromRam
from flashmoe_sim.systems.gpu_slots import GpuSlots
from flashmoe_sim.timeline.models.async_upload import AsyncUpload


@dataclass(frozen=True, kw_only=True)
class Crow(GpuSlots, program="crow"):
    """Each layer's slots on the GPU hold the last used experts; a tier in pinned RAM serves misses, then the SSD.

    The engine evicts from its tier by CLOCK or in the order of arrival; here the expert read longest ago is evicted,
    and the tier is full when the run begins. Without a tier, misses are read with direct I/O.

    slots: per layer; left out: as many as the GPU has room for, which is its authors' choice.
    tier_gib: size of the tier; 0: none; left out: half of the RAM. The published setting uses 32 of 63 GiB.
    """

    slots: int | None = None
    tier_gib: int | None = None

    def own_size(self, case: Case) -> int:
        return min(super().own_size(case), case.n_experts - 1)

    def sized(self, case: Case) -> Self:
        return self.taken(super().sized(case), case)

    def tier(self, case: Case) -> int:
        """The tier's size in GiB."""
        if self.tier_gib is not None:
            return self.tier_gib
        memory = case.machine.memory
        return 0 if memory is None else int(memory.ram_gib.value // 2)

    def policy(self, case: Case) -> Lru:
        return Lru()

    def execution(self, case: Case) -> UploadedFromRam | AsyncUpload:
        return UploadedFromRam() if self.tier(case) else AsyncUpload()

    def plan(self, case: Case) -> Plan:
        plan, tier = super().plan(case), self.tier(case)
        return replace(plan, machine=_with_ram(plan.machine, tier)) if tier else replace(plan, direct_io=True)

    def beside(self, case: Case) -> tuple[Share, ...]:
        return (Share("tier", "ram", self.tier(case) * GIB),)

    def launch(self, case: Case) -> Launch:
        words = ["-ngl", "99", *self.serving_words(case, maps=False)]
        words += ["--moe-stream", "--moe-stream-cache", f"{self.slots}s"]
        words += ["--moe-stream-io-threads", "8", "--moe-stream-direct"]
        words += ["--moe-stream-l2", str(self.tier(case))] if self.tier(case) else []
        return Launch(llama_words(case, *words))


def _with_ram(machine: Machine, gib: int) -> Machine:
    """The machine with this much RAM for the tier, which replaces the page cache."""
    if machine.memory is None:
        return machine
    beside = replace(machine.memory.reserve_gib, value=machine.memory.ram_gib.value - gib)
    return replace(machine, memory=replace(machine.memory, reserve_gib=beside))
