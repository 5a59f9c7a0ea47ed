"""ds4 (DwarfStar): one list of experts in a Mac's memory, read from its own GGUF files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from flashmoe_sim.parameters import INT32, Limits
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.lfu_halved import LfuHalved
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.systems.base import Case, Cost, Launch, Plan, Share, System, gpu_left, gpu_weights, ladder, no_room
from flashmoe_sim.systems.execution import ReadIntoSlots
from flashmoe_sim.systems.published import PublishedRun, RanAs
from flashmoe_sim.systems.turbo_fieldfare import TurboFieldfare
from flashmoe_sim.timeline.models.resident import Resident

KEPT = 4 / 5  # of the memory for the GPU that the engine's own size takes, dense weights included


@dataclass(frozen=True, kw_only=True)
class Ds4(System):
    """The experts of all layers that fit are in memory that the GPU sees; the least used one is evicted, and counts are
    halved every 16 tokens. A model that fits is resident as a whole.

    A prompt is read layer by layer, beside the cache; its last tokens then fill the cache. Here it goes through the
    cache like any call, and the speed of prompts is not predicted. The list of popular experts that fills the cache at
    the start is left out.

    experts: of all layers together; left out: all if they fit, else as many as the engine's own rule keeps.
    """

    name: ClassVar[str] = "ds4"
    title: ClassVar[str] = "DwarfStar"
    engine: ClassVar[str] = "ds4"
    program: ClassVar[str] = "ds4"
    source: ClassVar[str] = (
        "antirez/ds4 8df7a49b4: ds4_help.c; 80ebbc3: ds4_metal.m:7754-7848, 8678-8776, 9666-9830, 23392-23433, "
        "ds4_ssd.c:80-106; 30ac654f5: docs/SSD_STREAMING.md"
    )
    keeps: ClassVar[str] = "the experts used most of late, of all layers together"
    misses: ClassVar[str] = "read through the page cache into a slot, while hits are computed"
    limits: ClassVar[Limits] = {"experts": (1, INT32)}
    size: ClassVar[str] = "experts"
    own_gpu: ClassVar[bool | None] = False
    times_prompts: ClassVar[bool] = False
    costs: ClassVar[tuple[Cost, ...]] = TurboFieldfare.costs  # both read with pread into slots that the GPU sees

    experts: int | None = None

    def why_not(self, case: Case) -> str:
        if self.experts is not None and self.experts < (least := case.model.top_k or 1):
            return f"experts={self.experts}; a token routes {least} in a layer, and each needs a slot"
        return super().why_not(case)

    def _all(self, case: Case) -> int:
        return sum(layer.n_experts for layer in case.model.layers.values())

    def _most(self, case: Case) -> int:
        """All experts if they fit, else as many as fit; the layers of a prompt are read into places of the cache."""
        room = gpu_left(case)
        if case.model.routed_bytes <= room:
            return self._all(case)
        most = room // self._expert_bytes(case)
        if most < (case.model.top_k or 1):
            raise no_room("a cache of experts", room)
        return most

    def _expert_bytes(self, case: Case) -> int:
        return max(layer.expert_bytes for layer in case.model.layers.values())

    def _resident(self, case: Case) -> bool:
        return self.chosen >= self._all(case)

    def sizes(self, case: Case) -> Sequence[int]:
        most, layers = self._most(case), len(case.model.layers)
        return sorted({most, *(layers * each for each in ladder(case.model.top_k or 1, most // layers))})

    def sized(self, case: Case) -> Self:
        if self.size_given:
            return self
        most, kept = self._most(case), int(KEPT * case.gpu_bytes) - case.dense_bytes
        own = max(kept // self._expert_bytes(case), case.model.top_k or 1)
        return replace(self, experts=most if most == self._all(case) else min(own, most))

    def plan(self, case: Case) -> Plan:
        machine = self.adapted(case.machine)
        if self._resident(case):
            return Plan(Setup(Bank(slots=case.n_experts), LfuHalved(), "atomic"), Resident(), machine)
        bank = Bank(budget_bytes=self.chosen * self._expert_bytes(case))
        return Plan(Setup(bank, LfuHalved(), "atomic", scope="global"), ReadIntoSlots(), machine)

    def memory(self, case: Case) -> tuple[Share, ...]:
        weights = gpu_weights(case, copies=False)
        if self._resident(case):
            return (Share("experts", "gpu", case.model.routed_bytes), *weights)
        cache = Share("cache", "gpu", self.chosen * self._expert_bytes(case))
        return (cache, *weights, Share("experts", "mapped", case.model.routed_bytes))

    def launch(self, case: Case) -> Launch:
        words = ["ds4-server", "-m", case.gguf, *(("--ctx", str(case.context)) if case.context else ())]
        if not self._resident(case):
            words += ["--ssd-streaming", "--ssd-streaming-cache-experts", str(self.experts)]
        return Launch(tuple(words))

    ran_as: ClassVar[RanAs] = {"ds4": ("slot_bank_ssd", "ssd_stream", "all_gpu")}

    @classmethod
    def ran(cls, run: PublishedRun) -> Self:
        if run.strategy == "all_gpu":
            return cls()
        each = max(layer.expert_bytes for layer in run.model.layers.values())
        return cls(experts=run.residents or (run.cache_bytes or 0) // each or None)
