"""Flash-MoE: slots of each layer, filled from a sidecar file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from flashmoe_sim.budget import own_memory
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.errors import Conflict
from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.parameters import Choices
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.prefetchers.table import parse_prefetcher
from flashmoe_sim.residency.workload import Setup, Workload
from flashmoe_sim.systems.base import Case, Launch, Plan, Share, System, gpu_weights, ladder, llama_words
from flashmoe_sim.systems.execution import (
    CopiedFromPack,
    CopiedFromPackInRam,
    ParallelInstallInRam,
    SplitInstallInRam,
    UploadedBeside,
)
from flashmoe_sim.systems.slot_bank_flags import (
    INSTALLS,
    IO_SPLIT,
    MODES,
    MODES_WITH_SLOTS,
    NO_GPU_BANK,
    ON_GPU,
    PREFETCH,
    bank_flags,
    not_streamed,
)
from flashmoe_sim.systems.workloads import batched, with_fewer
from flashmoe_sim.timeline.models.async_upload import AsyncUpload
from flashmoe_sim.timeline.models.base import ExecutionModel
from flashmoe_sim.timeline.models.parallel_install import ParallelInstall
from flashmoe_sim.timeline.models.resident import Resident
from flashmoe_sim.timeline.models.split_install import SplitInstall
from flashmoe_sim.trace.made_prompt import MICRO_BATCH

MOST_RESIDENT_BANK = 32 * GIB
# How misses are installed: the execution model, and the one for a bank in RAM.
EXECUTIONS: dict[str, tuple[type[ExecutionModel], type[ExecutionModel]]] = {
    "default": (SplitInstall, SplitInstallInRam),
    "async": (UploadedBeside, SplitInstallInRam),
    "batched": (ParallelInstall, ParallelInstallInRam),
    "futures": (AsyncUpload, ParallelInstallInRam),
}
PREFETCHES = ("none", *PREFETCH)


@dataclass(frozen=True, kw_only=True)
class SlotBank(System, program="slot-bank"):
    """Every layer has a bank of slots for the last used experts; a miss is read from a sidecar file into a slot.

    With CUDA, ROCm or Vulkan the bank is in RAM, and the CPU computes the experts: the engine maps the bank, and only
    Metal computes from such a mapping. Only for gemma4 it does not map it, and the slots are on the GPU.

    mode: a value of `--moe-mode`. `resident-slot-bank` reads the sidecar into RAM at load, and copies misses from
        there. `resident-bank` keeps all experts of the sidecar resident, at most 32 GiB; `resident`, alias `stock`, all
        of the model's file. The oracle modes are the ceilings `all-hit` and `oracle-prefetch` of `sim ceilings`.
    slots: per layer; left out: as many as a token routes, the engine's default.
    top_k: experts of a token; left out: the model's.
    io_split: the most chunks in which a tensor family of an expert is read.
    prefetch: none, temporal, predict-prev or predict-top1.
    install: `default`, `async`, `batched` or `futures`. `default` reads and uploads one tensor family of one miss after
        another; `async` reads the next one during an upload, and needs a GPU with its own memory; `batched` reads
        all misses of a call at once; `futures` uploads each family as it arrives, and needs io_split=1.
    host_bank: whether the bank is in RAM even if the engine would put it on the GPU.
    ubatch: tokens of a prompt that are routed together; left out: 1 with slots and 512 without. The slots must hold all
        experts that these tokens use, or the program stops. Its authors run it with 1.
    """

    words: ClassVar[Choices] = {"mode": MODES, "prefetch": PREFETCHES, "install": EXECUTIONS}
    choices: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "prefetch": PREFETCHES,
        "io_split": (1, 2, 4, 8),
        "install": tuple(EXECUTIONS),
    }
    prompt_choices: ClassVar[Mapping[str, tuple[Any, ...]]] = {"ubatch": (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)}

    mode: str = "slot-bank"
    slots: int | None = None
    top_k: int | None = None
    io_split: int = 4
    prefetch: str = "none"
    install: str = "default"
    host_bank: bool = False
    ubatch: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.has_slots and (self.slots or self.prefetch != "none"):
            raise Conflict(f"system slot-bank: {self.mode} has no slots; leave slots and prefetch out")
        if self.mode != "slot-bank" and (self.install, self.io_split) != ("default", 4):
            raise Conflict(f"system slot-bank: {self.mode} reads nothing; leave install and io_split out")
        if self.install == "futures" and self.io_split != 1:
            raise Conflict("system slot-bank: install=futures needs io_split=1; with more the reads are batched")

    @property
    def has_slots(self) -> bool:
        """Whether the mode has slots; otherwise every expert is resident."""
        return self.mode in MODES_WITH_SLOTS

    def in_ram(self, case: Case) -> bool:
        """Whether the slots are in RAM, with the CPU computing their experts beside a GPU."""
        machine = case.machine
        if machine.gpu is None or not self.has_slots:
            return False
        shared = machine.api in ("metal", "") and not own_memory(machine)
        return self.host_bank or not (shared or case.model.arch in ON_GPU)

    @property
    def micro_batch(self) -> int:
        return self.ubatch or (1 if self.has_slots else MICRO_BATCH)

    def why_not(self, case: Case) -> str:
        arch, routed = case.model.arch, case.model.routed_bytes
        if self.has_slots and (other := not_streamed(arch)):
            return f"{other}; see mode=resident"
        if self.mode == "resident-bank" and routed > MOST_RESIDENT_BANK:
            return f"{routed / GIB:.1f} GiB of experts; resident-bank refuses more than 32, see mode=resident"
        if self.install == "async" and (self.in_ram(case) or not own_memory(case.machine)):
            return "install=async needs slots in a GPU's own memory; the engine has none there"
        experts, top_k = case.n_experts, case.model.top_k
        if self.chosen > experts:
            return f"{self.slots} slots; {case.model.name} has {experts} experts a layer"
        if (self.top_k or 0) > top_k > 0:
            return f"top_k {self.top_k}; {case.model.name} routes {top_k} experts a token"
        if self.slots is not None and self.slots < (self.top_k or top_k):
            return f"{self.slots} slots; a token routes {self.top_k or top_k} experts, and each needs a slot"
        return super().why_not(case)

    def why_not_engine(self, model: ModelGeometry, machine: Machine) -> str:
        """Without slots it is llama.cpp of its day, and what is known of its slots does not matter."""
        return super().why_not_engine(model, machine) if self.has_slots else ""

    def sizes(self, case: Case) -> Sequence[int]:
        """Sizes with at least as many slots as a micro-batch can use experts, so that no prompt stops the program."""
        used = self.micro_batch * (self.top_k or case.model.top_k or 1)
        return ladder(min(used, case.n_experts), case.n_experts) if self.has_slots else ()

    def sized(self, case: Case) -> Self:
        return super().sized(case) if self.has_slots else self

    def own_size(self, case: Case) -> int:
        return self.top_k or case.model.top_k or 1

    def plan(self, case: Case) -> Plan:
        machine, ahead = self.adapted(case.machine), parse_prefetcher(self.prefetch)
        if not self.has_slots:
            return Plan(Setup(Bank(slots=case.n_experts), Lru(), "atomic"), Resident(), machine)
        if self.mode == "resident-slot-bank":
            packed = CopiedFromPackInRam() if self.in_ram(case) else CopiedFromPack()
            return Plan(Setup(Bank(slots=self.chosen), Lru(), "runtime", ahead, io_split=1), packed, machine)
        setup = Setup(Bank(slots=self.chosen), Lru(), "runtime", ahead, io_split=self.io_split)
        on_gpu, in_ram = EXECUTIONS[self.install]
        return Plan(setup, in_ram() if self.in_ram(case) else on_gpu(), machine)

    def memory(self, case: Case) -> tuple[Share, ...]:
        where = "gpu" if case.machine.gpu is not None else "ram"
        experts = Share("experts", where, case.model.routed_bytes)
        if self.has_slots:
            experts = Share("slots", "ram" if self.in_ram(case) else where, self.chosen * case.slot_bytes)
        packed = (Share("packed experts", "ram", case.model.routed_bytes),) * (self.mode == "resident-slot-bank")
        return (experts, *(replace(share, where=where) for share in gpu_weights(case)), *packed)

    def prepared(self, workload: Workload) -> Workload:
        return batched(with_fewer(workload, self.top_k), self.micro_batch)

    def launch(self, case: Case) -> Launch:
        sidecar = "SIDECAR" if self.mode != "resident" else ""
        words = bank_flags(self.mode, sidecar=sidecar, slots=self.chosen, top_k=self.top_k or 0)
        words += [IO_SPLIT, str(self.io_split)] if self.mode == "slot-bank" else []
        words += [PREFETCH[self.prefetch]] if self.prefetch != "none" else []
        words += ["-ngl", "99" if case.machine.gpu is not None else "0", "-ub", str(self.micro_batch)]
        variables = INSTALLS[self.install] | ({NO_GPU_BANK: "1"} if self.host_bank else {})
        return Launch(llama_words(case, *words, program="llama-cli"), variables)
