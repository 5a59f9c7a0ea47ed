"""The whole model on the CPU."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from flashmoe_sim.io.errors import Unsupported
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.demand import Demand
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.systems.base import Case, Launch, Plan, Share, System, drafter_share, llama_words
from flashmoe_sim.systems.published import PublishedRun, RanAs
from flashmoe_sim.timeline.models.mapped import Mapped


@dataclass(frozen=True, kw_only=True)
class Cpu(System):
    """The CPU computes everything from the mapped file; whatever RAM does not hold is read again, page by page."""

    name: ClassVar[str] = "cpu"
    title: ClassVar[str] = "llama.cpp on the CPU, mapped"
    engine: ClassVar[str] = "llama.cpp"
    program: ClassVar[str] = "llama-cpp"
    source: ClassVar[str] = "ggml-org/llama.cpp 0c1e57098: -ngl 0, mapped file, --no-repack"
    keeps: ClassVar[str] = "what RAM holds of the file"
    misses: ClassVar[str] = "page faults that read the file"
    caches: ClassVar[bool] = False
    several_gpus: ClassVar[bool] = True
    by_faults: ClassVar[bool] = True

    def why_not(self, case: Case) -> str:
        return "needs a CPU that the machine's file describes" if case.machine.cpu is None else super().why_not(case)

    def plan(self, case: Case) -> Plan:
        return Plan(Setup(Bank(slots=1), Demand(), "atomic"), Mapped(), self.adapted(case.machine))

    def memory(self, case: Case) -> tuple[Share, ...]:
        return (
            Share("dense weights", "ram", case.dense_bytes),
            Share("context", "ram", case.kv_bytes),
            Share("compute buffers", "ram", case.compute_bytes(copies=False)),
            *drafter_share(case, "ram"),
            Share("experts", "mapped", case.model.routed_bytes),
        )

    def adapted(self, machine: Machine) -> Machine:
        return replace(super().adapted(machine), gpu=None, link=None, api="")

    def launch(self, case: Case) -> Launch:
        no_gpu = ("-ngl", "0") if case.machine.gpu is None else ("-dev", "none")  # or prompts would use the GPU
        # Else weights of some types are copied out of the mapped file, into memory that must hold them all.
        in_place = () if self.loads_whole(case) else ("--no-repack",)
        return Launch(llama_words(case, *no_gpu, *self.serving_words(case), *in_place))

    ran_as: ClassVar[RanAs] = {"llama.cpp": ("cpu_only", "page_cache_mmap")}

    @classmethod
    def ran(cls, run: PublishedRun) -> Self:
        if layers := run.number_after("-ngl "):
            raise Unsupported(f"{run.where}: -ngl {layers} puts layers on the GPU, where {cls.name} has none")
        return super().ran(run)
