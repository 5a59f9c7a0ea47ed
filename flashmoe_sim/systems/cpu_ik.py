"""The whole model on the CPU, by ik_llama.cpp."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.systems.base import Case, Launch, llama_words
from flashmoe_sim.systems.cpu import Cpu
from flashmoe_sim.systems.published import RanAs


@dataclass(frozen=True, kw_only=True)
class CpuIk(Cpu):
    """As `cpu`, in ik_llama.cpp, whose cores compute weights of few bits faster."""

    name: ClassVar[str] = "cpu-ik"
    title: ClassVar[str] = "ik_llama.cpp on the CPU, mapped"
    engine: ClassVar[str] = "ik_llama.cpp"
    program: ClassVar[str] = "ik_llama-cpp"
    source: ClassVar[str] = "ikawrakow/ik_llama.cpp 8337e4cd3: -ngl 0, mapped file"
    ran_as: ClassVar[RanAs] = {"ik_llama.cpp": ("cpu_only", "page_cache_mmap")}

    def why_not_engine(self, model: ModelGeometry, machine: Machine) -> str:
        return super().why_not_engine(model, self.adapted(machine))  # whose GPU it does not need

    def launch(self, case: Case) -> Launch:
        """With the model's own chat template, as PlacedIk's; a GPU is hidden, or prompts would use it."""
        hidden = {"CUDA_VISIBLE_DEVICES": ""} if case.machine.api == "cuda" else {}
        return Launch(llama_words(case, "-ngl", "0", *self.serving_words(case), "--jinja"), hidden)
