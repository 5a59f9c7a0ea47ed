"""imp: each layer's slots on the GPU in front of experts in RAM, bypassed by calls too large for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.systems.base import Case, Launch, Share
from flashmoe_sim.systems.execution import CopiedFromFile, UploadedFromRam
from flashmoe_sim.systems.gpu_slots import GpuSlots

MOST_PERCENT = 90


@dataclass(frozen=True, kw_only=True)
class Imp(GpuSlots, program="imp"):
    """Each layer's slots on the GPU hold the last used experts, and misses are copied to the GPU from RAM.

    A call that requests more experts than a layer has slots bypasses the slots: it uploads all experts and keeps none.

    slots: experts per layer; left out: what `percent` of the free GPU memory holds. The engine counts three slots per
        expert, one for each projection.
    percent: share of the free GPU memory, in per cent.
    pinned: whether experts are copied into pinned RAM at load. Otherwise they are copied from the mapped file.
    """

    slots: int | None = None
    percent: int = 15
    pinned: bool = False

    def room(self, case: Case) -> int:
        return super().room(case) * self.percent // 100

    def sizes(self, case: Case) -> Sequence[int]:
        return super(Imp, replace(self, percent=MOST_PERCENT)).sizes(case)

    def policy(self, case: Case) -> Lru:
        return Lru()

    def execution(self, case: Case) -> CopiedFromFile:
        return UploadedFromRam() if self.pinned else CopiedFromFile()

    def adapted(self, machine: Machine) -> Machine:
        """Without page faults if RAM is pinned."""
        return machine if self.pinned else super().adapted(machine)

    def looked_up(self, workload: Workload) -> NDArray[np.bool_]:
        """Calls that do not exceed a layer's slots."""
        fits = np.ones(workload.trace.calls, np.bool_)
        for pool in workload.layer_pools:
            fits[pool.call] = pool.requests <= self.chosen
        return fits

    def beside(self, case: Case) -> tuple[Share, ...]:
        (mapped,) = super().beside(case)
        return (replace(mapped, where="ram") if self.pinned else mapped,)

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
