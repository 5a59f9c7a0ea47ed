"""The whole model on the CPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.errors import Unsupported
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.demand import Demand
from flashmoe_sim.residency.workload import Setup
from flashmoe_sim.systems.base import Case, Launch, Plan, Share, System, llama_words, ram_weights
from flashmoe_sim.systems.published import PublishedRun
from flashmoe_sim.timeline.models.mapped import Mapped


@dataclass(frozen=True, kw_only=True)
class Cpu(System, program="llama-cpp", name="cpu"):
    """The CPU computes everything from the mapped file; whatever RAM does not hold is read again, page by page."""

    def plan(self, case: Case) -> Plan:
        return Plan(Setup(Bank(slots=1), Demand(), "atomic"), Mapped(), self.adapted(case.machine))

    def memory(self, case: Case) -> tuple[Share, ...]:
        return (
            *ram_weights(case, Share("compute buffers", "ram", case.compute_bytes(copies=False))),
            Share("experts", "mapped", case.model.routed_bytes),
        )

    def launch(self, case: Case) -> Launch:
        no_gpu = ("-ngl", "0") if case.machine.gpu is None else ("-dev", "none")  # or prompts would use the GPU
        # Else weights of some types are copied out of the mapped file, into memory that must hold them all.
        in_place = () if self.loads_whole(case) else ("--no-repack",)
        return Launch(llama_words(case, *no_gpu, *self.serving_words(case), *in_place))

    @classmethod
    def ran(cls, run: PublishedRun) -> Self:
        if layers := run.gpu_layers:
            raise Unsupported(f"{run.where}: -ngl {layers} puts layers on the GPU, where {cls.name} has none")
        return super().ran(run)


@dataclass(frozen=True, kw_only=True)
class CpuIk(Cpu, program="ik_llama-cpp", name="cpu-ik"):
    """As `cpu`, in ik_llama.cpp, whose cores compute weights of few bits faster."""

    def why_not_engine(self, model: ModelGeometry, machine: Machine) -> str:
        return super().why_not_engine(model, self.adapted(machine))  # whose GPU it does not need

    def launch(self, case: Case) -> Launch:
        """With the model's own chat template, as PlacedIk's; a GPU is hidden, or prompts would use it."""
        hidden = {"CUDA_VISIBLE_DEVICES": ""} if case.machine.api == "cuda" else {}
        return Launch(llama_words(case, "-ngl", "0", *self.serving_words(case), "--jinja"), hidden)
