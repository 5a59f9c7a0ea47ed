"""Crow: slots on the GPU, backed by a tier in pinned RAM, backed by the SSD."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from flashmoe_sim.io.errors import Unsupported
from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.parameters import INT32, Limits
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.systems.base import (
    Case,
    Launch,
    Plan,
    Share,
    gpu_weights,
    llama_words,
)
from flashmoe_sim.systems.execution import UploadedFromRam
from flashmoe_sim.systems.gpu_slots import GpuSlots
from flashmoe_sim.systems.published import RanAs
from flashmoe_sim.timeline.models.async_upload import AsyncUpload


@dataclass(frozen=True, kw_only=True)
class Crow(GpuSlots):
    """Each layer's slots on the GPU hold the last used experts; a tier in pinned RAM serves misses, then the SSD.

    The engine evicts from its tier by CLOCK or in the order of arrival; here the expert read longest ago is evicted,
    and the tier is full when the run begins. Without a tier, misses are read with direct I/O.

    slots: per layer; left out: as many as the GPU has room for, which is its authors' choice.
    tier_gib: size of the tier; 0: none; left out: half of the RAM. The published setting uses 32 of 63 GiB.
    """

    name: ClassVar[str] = "crow"
    title: ClassVar[str] = "Crow, three tiers"
    engine: ClassVar[str] = "Crow"
    program: ClassVar[str] = "crow"
    source: ClassVar[str] = (
        "nibor1896/Crow 59db7ad: patches/moe-stream-on-b10269.patch; #25, #69, #87, on ggml-org/llama.cpp#25294"
    )
    keeps: ClassVar[str] = "the experts used last in slots of each layer, and more in pinned RAM"
    misses: ClassVar[str] = "uploaded from pinned RAM, or read from storage past the page cache"
    limits: ClassVar[Limits] = {"slots": (1, INT32), "tier_gib": (0, INT32)}

    slots: int | None = None
    tier_gib: int | None = None

    def sized(self, case: Case) -> Self:
        if self.size_given:
            return self
        sized = replace(self, slots=min(super().sized(case).chosen, case.n_experts - 1))
        if reason := sized.why_not(case):
            raise Unsupported(reason)
        return sized

    def tier(self, case: Case) -> int:
        """The tier's size in GiB."""
        if self.tier_gib is not None:
            return self.tier_gib
        memory = case.machine.memory
        return 0 if memory is None else int(memory.ram_gib.value // 2)

    def plan(self, case: Case) -> Plan:
        setup = Setup(Bank(slots=min(self.chosen, case.n_experts)), Lru(), "atomic")
        machine = self.adapted(case.machine)
        if not self.tier(case):
            return Plan(setup, AsyncUpload(), machine, direct_io=True)
        return Plan(setup, UploadedFromRam(), _with_ram(machine, self.tier(case)))

    def memory(self, case: Case) -> tuple[Share, ...]:
        return (
            Share("slots", "gpu", self.chosen * case.slot_bytes),
            *gpu_weights(case),
            Share("tier", "ram", self.tier(case) * GIB),
        )

    def launch(self, case: Case) -> Launch:
        words = ["-ngl", "99", *self.serving_words(case, maps=False)]
        words += ["--moe-stream", "--moe-stream-cache", f"{self.slots}s"]
        words += ["--moe-stream-io-threads", "8", "--moe-stream-direct"]
        words += ["--moe-stream-l2", str(self.tier(case))] if self.tier(case) else []
        return Launch(llama_words(case, *words))

    ran_as: ClassVar[RanAs] = {"llama.cpp + moe-stream patch": ("slot_bank_ssd",)}


def _with_ram(machine: Machine, gib: int) -> Machine:
    """The machine with this much RAM for the tier, which replaces the page cache."""
    if machine.memory is None:
        return machine
    beside = replace(machine.memory.reserve_gib, value=machine.memory.ram_gib.value - gib)
    return replace(machine, memory=replace(machine.memory, reserve_gib=beside))
