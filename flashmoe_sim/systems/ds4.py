"""ds4 (DwarfStar): one list of experts of all layers in a GPU's memory, read from its own GGUF files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from flashmoe_sim.budget import own_memory
from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.policies._call_lru import CallLru
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.demand import Demand
from flashmoe_sim.policies.lfu_halved import LfuHalved
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.residency.workload import Setup
from flashmoe_sim.systems.base import (
    Case,
    Cost,
    Launch,
    Plan,
    Share,
    System,
    gpu_left,
    gpu_weights,
    ladder,
    largest_expert_bytes,
    no_room,
)
from flashmoe_sim.systems.execution import ReadIntoSlots, UploadedBeside
from flashmoe_sim.systems.published import PublishedRun
from flashmoe_sim.systems.split import of_other_gpus
from flashmoe_sim.timeline.models.overlap_prefetch import OverlapPrefetch
from flashmoe_sim.timeline.models.resident import Resident

KEPT = 4 / 5  # of the memory for the GPU that the engine's own size takes, dense weights included
METAL, CUDA = "metal", "cuda"
FREE_BYTES = {CUDA: 8 * GIB, "rocm": 16 * GIB}  # left free when the cache is made
TUNED_COMPUTE = "12.1"  # of the GB10, for which alone its CUDA kernels are tuned
LAYER, READ, ATTENTION = "gpu.layer_us", "storage.read_gb_s", "gpu.attention_gb_s"  # what its CUDA kernels cost
GLM, Q4 = ("glm-dsa", "glm5next"), "ds4-q4"  # pull request 1097, not merged
PROMPT_LAYERS = 2  # of experts, by which the engine's own size is smaller


@dataclass(frozen=True, kw_only=True)
class Ds4(System, program="ds4"):
    """The experts of all layers that fit are in memory that the GPU sees. On a Mac the least used one is evicted, and
    counts are halved every 16 tokens; with CUDA and ROCm the one used longest ago. A model that fits is resident as a
    whole.

    With CUDA, the experts of a call count as used at the same time, of equal ones the first slot is evicted, reads come
    one after the other, and all are computed then; with ROCm they are read together, while hits are computed. Both read
    past the page cache.

    A prompt is read layer by layer, beside the cache; its last tokens then fill the cache. Here it goes through the
    cache like any call, and the speed of prompts is not predicted. The list of popular experts that fills the cache at
    the start is left out. Several GPUs compute their layers in turn; its tensor parallelism is left out.

    experts: of all layers together; left out: all if they fit, else as many as the engine's own rule keeps. With CUDA
        at least those of a layer, which a prompt may use.
    inert: whether the cache keeps nothing, as with CUDA in builds of July and August 2026.
    """

    experts: int | None = None
    inert: bool = False

    @property
    def builds(self) -> str:
        return "a build of July or August 2026; later ones keep experts" if self.inert else ""

    def why_not(self, case: Case) -> str:
        if self.experts is not None and self.experts < (least := case.model.top_k or 1):
            return f"experts={self.experts}; a token routes {least} in a layer, and each needs a slot"
        if reason := super().why_not(case):
            return reason
        machine, sizes = case.machine, {layer.expert_bytes for layer in case.model.layers.values()}
        if self.inert and machine.api != CUDA:
            return "inert=true is of builds with CUDA; leave it out"
        if machine.api == CUDA and case.model.arch in GLM and case.model.quant == Q4:
            return f"computes no experts of GLM in {Q4} with CUDA"
        if machine.gpus > 1:
            return self._why_not_several(case)
        if machine.api == CUDA and len(sizes) > 1 and not self._whole(case):
            return "empties its cache at each layer whose experts have another size, and this model has several sizes"
        return ""

    def _why_not_several(self, case: Case) -> str:
        machine = case.machine
        if machine.api != CUDA:
            return f"is known for one GPU only with {machine.api}; the machine has {machine.gpus}"
        if machine.cards:
            unlike = " and ".join(dict.fromkeys(card.name for card in machine.cards))
            return f"is known for equal GPUs only; the machine has {unlike}"
        return (
            "" if self._whole(case) else f"reads experts from storage on one GPU only; the machine has {machine.gpus}"
        )

    def _fits(self, case: Case) -> bool:
        others = sum(share.size_bytes for share in of_other_gpus(case, case.compute_bytes(copies=False)))
        return case.model.routed_bytes <= gpu_left(case) - others

    def _whole(self, case: Case) -> bool:
        """Whether the model is resident as a whole, with the size that is given or chosen."""
        return self._fits(case) if self.experts is None else self.experts >= case.all_experts

    def _most(self, case: Case) -> int:
        """All experts if they fit, else as many as fit; the layers of a prompt are read into places of the cache."""
        if self._fits(case):
            return case.all_experts
        return self._most_slots(case)

    def _most_slots(self, case: Case) -> int:
        room = gpu_left(case) - FREE_BYTES.get(case.machine.api, 0)
        most = room // case.expert_bytes
        if most < self._least(case):
            raise no_room("a cache of experts", room)
        return most

    def _least(self, case: Case) -> int:
        """The fewest slots that the engine makes."""
        return case.n_experts if case.machine.api == CUDA else case.model.top_k or 1

    def _resident(self, case: Case) -> bool:
        return self.chosen >= case.all_experts and not self.inert

    def _slots(self, case: Case) -> int:
        """The slots of the cache; with CUDA and ROCm the engine lowers a number that leaves too little free."""
        if case.machine.api == METAL:
            return self.chosen
        return min(max(self.chosen, self._least(case)), self._most_slots(case))

    def sizes(self, case: Case) -> Sequence[int]:
        most, layers = self._most(case), len(case.model.layers)
        least = -(-self._least(case) // layers) if case.machine.api == CUDA else self._least(case)
        return sorted({most, *(layers * each for each in ladder(least, most // layers))})

    def own_size(self, case: Case) -> int:
        most = self._most(case)
        return most if most == case.all_experts else min(self._own(case), most)

    def _own(self, case: Case) -> int:
        """The engine's own size: of all memory that the GPU says it has, which with CUDA is all that it shares."""
        memory, total = case.machine.memory, case.gpu_bytes
        if case.machine.api == CUDA and memory is not None and not own_memory(case.machine):
            total = int(memory.ram_gib.value * GIB)
        own = (int(KEPT * total) - case.dense_bytes) // case.expert_bytes
        own -= 0 if case.machine.api == METAL else PROMPT_LAYERS * case.n_experts
        return max(own, self._least(case))

    def plan(self, case: Case) -> Plan:
        machine = self.adapted(case.machine)
        if self._resident(case):
            return Plan(Setup(Bank(slots=case.n_experts), LfuHalved(), "atomic"), Resident(), machine)
        bank = Bank(budget_bytes=self._slots(case) * case.expert_bytes)
        if machine.api == METAL:
            return Plan(Setup(bank, LfuHalved(), "atomic", scope="global"), ReadIntoSlots(), machine)
        if machine.api != CUDA:
            setup = Setup(bank, Lru(), "atomic", scope="global", io_split=1)
            return Plan(setup, OverlapPrefetch(), machine, direct_io=True)
        setup = Setup(bank, CallLru(), "protected", scope="global", io_split=1)
        if self.inert:
            setup = replace(setup, policy=Demand())
        return Plan(setup, UploadedBeside(), machine, direct_io=True)

    def costs_on(self, machine: Machine) -> tuple[Cost, ...]:
        """On CUDA reads, attention and layers; on a Mac copies: it reads with pread into slots that the GPU sees."""
        tuned = machine.unified and machine.gpu_compute == TUNED_COMPUTE
        of_cuda = (READ, ATTENTION) if tuned else (READ, ATTENTION, LAYER)
        paths = {METAL: ("memory.copy_gb_s",), CUDA: of_cuda}.get(machine.api, (ATTENTION,))
        return tuple(cost for cost in self.costs if cost.path in paths)

    def memory(self, case: Case) -> tuple[Share, ...]:
        weights = gpu_weights(case, copies=False)
        if self._resident(case):
            others = of_other_gpus(case, case.compute_bytes(copies=False))
            return (Share("experts", "gpu", case.model.routed_bytes), *weights, *others)
        cache = Share("cache", "gpu", self._slots(case) * case.expert_bytes)
        mapped = (Share("experts", "mapped", case.model.routed_bytes),) if case.machine.api == METAL else ()
        return (cache, *weights, *mapped)

    def launch(self, case: Case) -> Launch:
        words = ["ds4-server", "-m", case.gguf, *(("--ctx", str(case.context)) if case.context else ())]
        words += ["--gpu-vram", "auto"] if case.machine.gpus > 1 else []
        if not self._resident(case):
            words += ["--ssd-streaming", "--ssd-streaming-cache-experts", str(self._slots(case))]
        return Launch(tuple(words))

    @classmethod
    def ran(cls, run: PublishedRun) -> Self:
        if run.strategy == "all_gpu":
            return cls()
        each = largest_expert_bytes(run.model)
        return cls(experts=run.residents or (run.cache_bytes or 0) // each or None, inert="inert" in run.flags)
