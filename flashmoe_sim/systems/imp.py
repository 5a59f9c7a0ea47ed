"""imp: each layer's slots on the GPU in front of experts in RAM, bypassed by calls too large for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.parameters import INT32, Limits
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.residency.replay import Replayed
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.systems.base import (
    Case,
    Launch,
    Plan,
    Share,
    gpu_weights,
)
from flashmoe_sim.systems.execution import CopiedFromFile, UploadedFromRam
from flashmoe_sim.systems.gpu_slots import GpuSlots
from flashmoe_sim.systems.parts import replay_in_parts
from flashmoe_sim.systems.published import RanAs

MOST_PERCENT = 90


@dataclass(frozen=True, kw_only=True)
class Imp(GpuSlots):
    """Each layer's slots on the GPU hold the last used experts, and misses are copied to the GPU from RAM.

    A call that requests more experts than a layer has slots bypasses the slots: it uploads all experts and keeps none.

    slots: experts per layer; left out: what `percent` of the free GPU memory holds. The engine counts three slots per
        expert, one for each projection.
    percent: share of the free GPU memory, in per cent.
    pinned: whether experts are copied into pinned RAM at load. Otherwise they are copied from the mapped file.
    """

    name: ClassVar[str] = "imp"
    title: ClassVar[str] = "imp, experts in RAM"
    engine: ClassVar[str] = "imp"
    program: ClassVar[str] = "imp"
    source: ClassVar[str] = "kekzl/imp 0aabfb5f: tools/imp-cli/args.cpp; #235, #1365, #1374, #1375"
    keeps: ClassVar[str] = "the experts used last, in slots of each layer on the GPU"
    misses: ClassVar[str] = "copied to the GPU from RAM"
    limits: ClassVar[Limits] = {"slots": (1, INT32), "percent": (1, MOST_PERCENT)}
    by_faults: ClassVar[bool] = True

    slots: int | None = None
    percent: int = 15
    pinned: bool = False

    def room(self, case: Case) -> int:
        return super().room(case) * self.percent // 100

    def sizes(self, case: Case) -> Sequence[int]:
        return super(Imp, replace(self, percent=MOST_PERCENT)).sizes(case)

    def plan(self, case: Case) -> Plan:
        setup = Setup(Bank(slots=min(self.chosen, case.n_experts)), Lru(), "atomic")
        return Plan(setup, UploadedFromRam() if self.pinned else CopiedFromFile(), self.adapted(case.machine))

    def adapted(self, machine: Machine) -> Machine:
        """Without page faults if RAM is pinned."""
        return machine if self.pinned else super().adapted(machine)

    def replay(self, workload: Workload, setup: Setup) -> Replayed:
        """Replay without lookups for calls that exceed a layer's slots."""
        fits = np.ones(workload.trace.calls, np.bool_)
        for pool in workload.layer_pools:
            fits[pool.call] = pool.requests <= (setup.bank.slots or 0)
        return replay_in_parts(workload, setup, [np.flatnonzero(fits)])

    def memory(self, case: Case) -> tuple[Share, ...]:
        return (
            Share("slots", "gpu", self.chosen * case.slot_bytes),
            *gpu_weights(case),
            Share("experts", "ram" if self.pinned else "mapped", case.model.routed_bytes),
        )

    def launch(self, case: Case) -> Launch:
        taken = self.chosen * case.slot_bytes
        percent = min(max(-(-100 * taken // max(case.budget.gpu_left_bytes, 1)), 1), MOST_PERCENT)
        settings = [f"force_host_experts={len(case.model.layers)}", f"expert_cache_budget_pct={percent}"]
        settings += ["pin_host_experts=true"] if self.pinned else []
        words = ["imp-cli", "--interactive", "--model", case.gguf]
        words += ["--max-seq-len", str(case.context)] if case.context else []
        for setting in settings:
            words += ["--set", f"moe.{setting}"]
        return Launch(tuple(words))

    ran_as: ClassVar[RanAs] = {"kekzl/imp": ("vram_lru",)}
