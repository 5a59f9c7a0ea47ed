"""nvmoe: one list of experts in GPU memory, read from a pack on NVMe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from flashmoe_sim.io.sizes import MIB
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.systems.base import Case, Launch, context_words, gpu_left, ladder, no_room
from flashmoe_sim.systems.gpu_slots import GpuCache
from flashmoe_sim.systems.published import PublishedRun
from flashmoe_sim.timeline.models.parallel_install import ParallelInstall

STEP_MIB = 256


@dataclass(frozen=True, kw_only=True)
class Nvmoe(GpuCache, program="nvmoe"):
    """The last used experts of all layers together are in GPU memory; misses are read from a pack with direct I/O.

    Experts of the current call are never evicted. The engine keeps one list for each size and format of experts; here
    one list holds all. Its reads ahead by the next layer's router, worth 4 to 7% of speed when it reads most, are left
    out.

    cache_mib: size of the cache; left out: all experts, or as many as the GPU has room for, in steps of 256. It must
        hold every expert of the largest layer.
    """

    cache_mib: int | None = None

    def _least_bytes(self, case: Case) -> int:
        return max(case.experts_bytes([number]) for number in case.model.layers)

    def own_size(self, case: Case) -> int:
        all_mib, room = -(-case.model.routed_bytes // MIB), gpu_left(case)
        most = all_mib if case.model.routed_bytes <= room else room // MIB // STEP_MIB * STEP_MIB
        if most * MIB < self._least_bytes(case):
            raise no_room("a cache on the GPU that holds a layer", room)
        return most

    def why_not(self, case: Case) -> str:
        if self.cache_mib is not None and self.cache_mib < (least := self._least_bytes(case) / MIB):
            return f"cache_mib {self.cache_mib}; one call may use a whole layer, so at least {least:.0f} are needed"
        return super().why_not(case)

    def sizes(self, case: Case) -> Sequence[int]:
        most, least = self.own_size(case), -(-self._least_bytes(case) // MIB)
        return sorted({most, *(1024 * gib for gib in ladder(-(-least // 1024), most // 1024))})

    def policy(self, case: Case) -> Lru:
        return Lru()

    def execution(self, case: Case) -> ParallelInstall:
        return ParallelInstall()

    def held_bytes(self, case: Case) -> int:
        return min(self.chosen * MIB, case.model.routed_bytes)

    def launch(self, case: Case) -> Launch:
        words = ("-m", "MODEL.nvmoe/resident.gguf", *context_words(case), "-ngl", "99")
        serving = self.serving_words(case, maps=False)
        return Launch(("llama-server", *words, *serving), {"NVMOE_CACHE_MB": str(self.cache_mib)})

    @classmethod
    def ran(cls, run: PublishedRun) -> Self:
        return cls(cache_mib=run.told(run.number_after("NVMOE_CACHE_MB="), "how large the cache is"))
