"""ktransformers: a share of all experts on the GPU, the others on the CPU."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.policies.base import Candidates, PinningPolicy, Policy
from flashmoe_sim.policies.demand import Demand
from flashmoe_sim.policies.static import StaticGlobal
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.systems.base import HALF, Case, Launch, Share
from flashmoe_sim.systems.gpu_slots import GpuSlots
from flashmoe_sim.systems.published import PublishedRun
from flashmoe_sim.systems.workloads import profile_of, with_profile
from flashmoe_sim.timeline.models.hot_cold import HotCold
from flashmoe_sim.trace.routing import RoutingTrace


@dataclass(frozen=True)
class ByNumber(PinningPolicy):
    """Hold experts by their numbers: equally many of each layer, or whole layers from the first on."""

    name: ClassVar[str] = "by-number"

    front: bool = False

    def pinned(self, candidates: Candidates) -> list[NDArray[np.bool_]]:
        left, masks = sum(candidates.slots), []
        for counts, slots in zip(candidates.counts, candidates.slots, strict=True):
            taken = min(left, len(counts)) if self.front else slots
            masks.append(np.arange(len(counts)) < taken)
            left -= taken
        return masks


# How the CPU computes a published format; without AVX-512, AVX2 serves since March 2026.
METHODS = {"bf16": "BF16", "fp8": "FP8", "int4": "RAWINT4", "mxfp4": "MXFP4"}
PROMPT_ON_GPU = 400  # tokens of a prompt, as the engine's tutorials have it; without the flag the CPU reads all


@dataclass(frozen=True, kw_only=True)
class KTransformers(GpuSlots, program="ktransformers"):
    """The GPU holds a fixed share of the experts, and the CPU computes misses in parallel.

    Several GPUs divide every tensor; here they compute at the speed of one. The engine's `random` placement and its
    dynamic one, which changes during long prompts, are left out. It reads prompts of 400 tokens and more on the GPU, to
    which it copies the experts of one layer after another; that is not timed.

    experts: experts per layer on the GPU, on average; 0: none; left out: as many as it has room for. The engine needs a
        number.
    strategy: `uniform` (the first of each layer), `frequency` (the most requested of a profile) or `front-loading`
        (from the first layer on). The engine does not explain the choice of `uniform`.
    profile: for `frequency`, as for `static-profile`.
    """

    experts: int | None = None
    strategy: str = "uniform"
    profile: str = HALF

    @property
    def uses_profile(self) -> bool:
        return self.strategy == "frequency"

    def why_not(self, case: Case) -> str:
        unlike = " and ".join(dict.fromkeys(card.name for card in case.machine.cards))
        parallel = f"divides each layer over equal GPUs; the machine has {unlike}" if unlike else ""
        return super().why_not(case) or parallel

    def why_not_slots(self, slots: int | None, case: Case) -> str:
        """Why the engine refuses so many experts, or empty; it takes 0, with all experts on the CPU."""
        return "" if slots == 0 else super().why_not_slots(slots, case)

    def policy(self, case: Case) -> Policy:
        if not self.chosen:
            return Demand()
        return StaticGlobal() if self.uses_profile else ByNumber(front=self.strategy == "front-loading")

    def execution(self, case: Case) -> HotCold:
        return HotCold()

    def taught(self, policy: Policy, workload: Workload) -> Policy:
        by_use = isinstance(policy, StaticGlobal)
        return StaticGlobal(profile=profile_of(workload.trace, self.profile)) if by_use else policy

    def with_profile_of(self, trace: RoutingTrace, folder: Path) -> Self | None:
        return with_profile(self, self.profile, trace, folder) if self.uses_profile else None

    def held_bytes(self, case: Case) -> int:
        return min(self.chosen, case.n_experts) * case.slot_bytes

    def beside(self, case: Case) -> tuple[Share, ...]:
        return (Share(self.others, "ram", case.model.routed_bytes - self.held_bytes(case)),)

    def launch(self, case: Case) -> Launch:
        words = ["python", "-m", "sglang.launch_server", "--model", "MODEL"]
        words += ["--kt-weight-path", "MODEL", "--kt-cpuinfer", case.cores, "--kt-threadpool-count", "NUMA_NODES"]
        words += ["--kt-method", METHODS[case.model.quant]] if case.model.quant in METHODS else []
        words += ["--context-length", str(case.context)] if case.context else []
        words += ["--kt-num-gpu-experts", str(self.experts), "--kt-expert-placement-strategy", self.strategy]
        words += ["--kt-gpu-prefill-token-threshold", str(PROMPT_ON_GPU)]
        words += ["--tensor-parallel-size", str(case.machine.gpus)] if case.machine.gpus > 1 else []
        words += ["--init-expert-location", "ACTIVATION.pt"] if self.strategy == "frequency" else []
        return Launch(tuple(words))

    def started(self, case: Case) -> Launch:
        """With a pool of threads for each of two sockets, or as many as the user counts NUMA nodes."""
        launch, sockets = super().started(case), case.machine.sockets
        if sockets == 1:
            return launch
        return replace(launch, words=tuple(str(sockets) if word == "NUMA_NODES" else word for word in launch.words))

    @classmethod
    def ran(cls, run: PublishedRun) -> Self:
        share = run.told(run.resident_share, "how many experts are on the GPU")
        return cls(experts=round(share * max(layer.n_experts for layer in run.model.layers.values())))
