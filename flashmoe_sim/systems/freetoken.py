"""FreeToken: one list of experts of all layers on the GPU, and every expert in pinned RAM."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from flashmoe_sim.io.errors import Unsupported
from flashmoe_sim.policies._call_lru import CallLru
from flashmoe_sim.systems.base import Case, Launch, gpu_left, halved, no_room
from flashmoe_sim.systems.execution import UploadedByGpu
from flashmoe_sim.systems.gpu_slots import GpuCache
from flashmoe_sim.systems.published import PublishedRun

USED = 0.9  # of the GPU's memory, which the engine plans with
PROMPT_LAYERS = 2  # of experts, through whose slots a prompt is read
STAMP = "hits-first-sorted"


@dataclass(frozen=True, kw_only=True)
class FreeToken(GpuCache, program="freetoken"):
    """The experts used last of all layers are in slots on the GPU, and misses are uploaded from pinned RAM, which holds
    all. The GPU does it by itself, without waiting for the host.

    The experts of a call count as used at the same time, of equal ones the first slot is evicted, and misses enter by
    number. It is the backend `offload`, which `auto` chooses unless `ft bench bw` finds the CPU more than twice as fast
    as the link; `hybrid` and `cpu` are left out. A prompt is read layer by layer through the first slots, whose
    experts are lost; here it goes through the cache like any call, and the speed of prompts is not predicted.

    slots: of all layers together; left out: as many as fit in 90% of the GPU's memory. At least those of two layers.
    """

    slots: int | None = None

    def why_not(self, case: Case) -> str:
        if reason := super().why_not(case):
            return reason
        if len({layer.expert_bytes for layer in case.model.layers.values()}) > 1:
            return "has slots of one size, and the experts of this model have several"
        least, most = self._least(case), case.all_experts
        if self.slots is not None and not least <= self.slots <= most:
            return f"slots={self.slots}; the engine takes {least} to {most} for this model"
        return ""

    def _least(self, case: Case) -> int:
        return min(PROMPT_LAYERS * case.n_experts, case.all_experts)

    def own_size(self, case: Case) -> int:
        own = int(USED * case.gpu_bytes) - case.gpu_dense_bytes - case.kv_bytes
        room = min(own, gpu_left(case))
        most = min(room // case.expert_bytes, case.all_experts)
        if most < self._least(case):
            raise no_room(f"{self._least(case)} slots", room)
        return most

    def sizes(self, case: Case) -> Sequence[int]:
        return halved(self.own_size(case), least=self._least(case))

    def policy(self, case: Case) -> CallLru:
        return CallLru(stamp=STAMP)

    def execution(self, case: Case) -> UploadedByGpu:
        return UploadedByGpu()

    def held_bytes(self, case: Case) -> int:
        return self.chosen * case.expert_bytes

    def launch(self, case: Case) -> Launch:
        words = ["ft", "serve", "--model", "MODEL", "--moe-backend", "offload"]
        words += ["--moe-cache-size", str(self.chosen), "--max-running-requests", "1"]
        words += ["--num-tokens", str(case.context)] if case.context else []
        return Launch(tuple(words))

    @classmethod
    def ran(cls, run: PublishedRun) -> Self:
        if re.search(r"hybrid|CPU MoE|--moe-backend cpu", run.flags):
            raise Unsupported(f"{run.where}: hybrid and cpu of FreeToken are not modelled")
        return cls(slots=run.number_after("--moe-cache-size "))
