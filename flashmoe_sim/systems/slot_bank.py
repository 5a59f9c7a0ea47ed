"""Flash-MoE: slots of each layer, filled from a sidecar file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from flashmoe_sim.geometry.model import MAX_IO_SPLIT
from flashmoe_sim.io.errors import BadInput, unknown_name
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.prefetchers.table import parse_prefetcher
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.systems.base import Case, Launch, Plan, Share, System, gpu_weights, ladder, llama_words
from flashmoe_sim.timeline.assemble import own_memory
from flashmoe_sim.timeline.models.table import parse_execution
from flashmoe_sim.trace.cut import cut

SWITCH = "LLAMA_FLASH_MOE_EXPERIMENTAL_"
# How misses are installed: the execution model, and the variables that choose it.
INSTALLS: dict[str, tuple[str, dict[str, str]]] = {
    "default": ("split-install", {}),
    "batched": (
        "parallel-install",
        {f"{SWITCH}PARALLEL_SLOT_READS": "1", f"{SWITCH}BATCHED_INSTALL_READS": "1"},
    ),
    "futures": ("async-upload", {f"{SWITCH}PARALLEL_SLOT_READS": "1"}),
}
PREFETCH_FLAGS = {
    "none": (),
    "temporal": ("--moe-prefetch-temporal",),
    "predict-prev": ("--moe-predict-prev-token",),
    "predict-top1": ("--moe-predict-top1-prev",),
}


@dataclass(frozen=True, kw_only=True)
class SlotBank(System):
    """Every layer has a bank of slots for the experts used last; a miss is read from a sidecar file into a slot.

    slots: of each layer. 0: as many as a token routes, the engine's default.
    top_k: experts of a token. 0: the model's.
    io_split: most chunks that a tensor family of an expert is read in.
    prefetch: none, temporal, predict-prev or predict-top1.
    install: `default` reads and uploads one tensor family of one miss after another; `batched` reads all misses of a
        call at once; `futures` uploads each family as it arrives, and needs io_split=1.
    """

    name: ClassVar[str] = "slot-bank"
    title: ClassVar[str] = "Flash-MoE slot bank"
    engine: ClassVar[str] = "anemll-flash-llama.cpp"
    source: ClassVar[str] = "Anemll/anemll-flash-llama.cpp 64e25509b: src/llama-context.cpp:507-2576"
    keeps: ClassVar[str] = "the experts used last, in slots of each layer"
    misses: ClassVar[str] = "read from storage into a slot"
    size: ClassVar[str] = "slots"
    choices: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "prefetch": tuple(PREFETCH_FLAGS),
        "io_split": (1, 2, 4, 8),
        "install": tuple(INSTALLS),
    }

    slots: int = 0
    top_k: int = 0
    io_split: int = 4
    prefetch: str = "none"
    install: str = "default"

    def __post_init__(self) -> None:
        if self.slots < 0 or self.top_k < 0:
            raise BadInput(f"system slot-bank: slots {self.slots}, top_k {self.top_k}; expected 0 or more")
        if not 1 <= self.io_split <= MAX_IO_SPLIT:
            raise BadInput(f"system slot-bank: io_split {self.io_split}; expected 1 to {MAX_IO_SPLIT}")
        if self.prefetch not in PREFETCH_FLAGS:
            raise unknown_name("prefetch of slot-bank", self.prefetch, PREFETCH_FLAGS)
        if self.install not in INSTALLS:
            raise unknown_name("install of slot-bank", self.install, INSTALLS)
        if self.install == "futures" and self.io_split != 1:
            raise BadInput("system slot-bank: install=futures needs io_split=1; with more the reads are batched")

    def why_not(self, case: Case) -> str:
        experts, top_k = case.n_experts, case.model.top_k
        if self.slots > experts:
            return f"{self.slots} slots; {case.model.name} has {experts} experts a layer"
        if self.top_k > top_k > 0:
            return f"top_k {self.top_k}; {case.model.name} routes {top_k} experts a token"
        if 0 < self.slots < (self.top_k or top_k):
            return f"{self.slots} slots; a token routes {self.top_k or top_k} experts, and each needs a slot"
        return super().why_not(case)

    def sizes(self, case: Case) -> Sequence[int]:
        return ladder(self.top_k or case.model.top_k or 1, case.n_experts)

    def sized(self, case: Case) -> Self:
        return self if self.slots else replace(self, slots=self.top_k or case.model.top_k or 1)

    def plan(self, case: Case) -> Plan:
        setup = Setup(Bank(slots=self.slots), Lru(), "runtime", parse_prefetcher(self.prefetch), io_split=self.io_split)
        return Plan(setup, parse_execution(INSTALLS[self.install][0]), self.adapted(case.machine))

    def memory(self, case: Case) -> tuple[Share, ...]:
        where = "gpu" if case.machine.gpu is not None else "ram"
        rest = gpu_weights(case) if own_memory(case.machine) else gpu_weights(case)[:2]
        return tuple(
            replace(share, where=where) for share in (Share("slots", where, self.slots * case.slot_bytes), *rest)
        )

    def prepared(self, workload: Workload) -> Workload:
        if not 0 < self.top_k < workload.trace.top_k:
            return workload
        return prepare(cut(workload.trace, top_k=self.top_k), workload.geometry)

    def launch(self, case: Case) -> Launch:
        words = ["--moe-mode", "slot-bank", "--moe-sidecar", "SIDECAR", "--moe-slot-bank", str(self.slots)]
        words += ["--moe-topk", str(self.top_k)] if self.top_k else []
        words += ["--moe-cache-io-split", str(self.io_split), *PREFETCH_FLAGS[self.prefetch]]
        if case.machine.gpu is not None:
            words += ["-ngl", "99", "--fit", "off", "-ub", "1"]
        return Launch(llama_words(case, *words, program="llama-cli"), INSTALLS[self.install][1])
