"""Whole layers of experts on the GPU, the others on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.demand import Demand
from flashmoe_sim.policies.placed import Placed as PlacedPolicy
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.systems.base import (
    PAGE_FAULTS,
    Case,
    Cost,
    Launch,
    Plan,
    Share,
    System,
    gpu_left,
    gpu_weights,
    llama_words,
    no_room,
)
from flashmoe_sim.systems.tensors import cpu_pattern, on_cpu
from flashmoe_sim.timeline.models.prefill_copy import PrefillCopy

AUTO = -1
MIN_BATCH = 32


@dataclass(frozen=True, kw_only=True)
class Placed(System):
    """Some layers keep their experts on the GPU, and the CPU computes the experts of the other layers; nothing moves.

    cpu_layers: layers whose experts are on the CPU, as `--n-cpu-moe` counts them: from layer 0 on, layers without
        experts too. -1: as few as `--fit`, the default, needs; it fills the GPU from the low layers on.
    ot: an argument of `-ot` that decides instead, such as exps=CPU.
    """

    name: ClassVar[str] = "placed"
    title: ClassVar[str] = "llama.cpp, experts placed by layer"
    engine: ClassVar[str] = "llama.cpp"
    source: ClassVar[str] = "ggml-org/llama.cpp 0eca4d490: common/fit.cpp, common/arg.cpp:2464, ggml-cuda.cu:5464"
    keeps: ClassVar[str] = "all experts of some layers in GPU memory"
    misses: ClassVar[str] = "computed on the CPU; copied to the GPU for prompts of 32 tokens and more"
    size: ClassVar[str] = "cpu_layers"
    own_gpu: ClassVar[bool | None] = True
    costs: ClassVar[tuple[Cost, ...]] = (PAGE_FAULTS,)

    cpu_layers: int = AUTO
    ot: str = ""

    def __post_init__(self) -> None:
        if self.cpu_layers < AUTO:
            raise BadInput(f"system {self.name}: cpu_layers {self.cpu_layers}; expected 0 or more, or -1")
        if self.ot and self.cpu_layers != AUTO:
            raise BadInput(f"system {self.name}: cpu_layers and ot both place experts; give one")

    def on_cpu(self, case: Case) -> list[int]:
        """The layers whose experts are on the CPU, ascending."""
        numbers = sorted(case.model.layers)
        if self.ot:
            return sorted(on_cpu(case.model, self.ot))
        if self.cpu_layers == AUTO:
            return self._that_do_not_fit(case, numbers)
        return [number for number in numbers if number < self.cpu_layers]

    @staticmethod
    def _that_do_not_fit(case: Case, order: Sequence[int]) -> list[int]:
        """The layers from the first on that does not fit, when the GPU takes them in this order."""
        left = gpu_left(case)
        if left < 0:
            raise no_room("experts on the GPU", left)
        for place, number in enumerate(order):
            left -= case.model.layers[number].expert_bytes * case.model.layers[number].n_experts
            if left < 0:
                return sorted(order[place:])
        return []

    def sizes(self, case: Case) -> Sequence[int]:
        """The fewest layers that leave the others room on the GPU, and all."""
        numbers = sorted(case.model.layers)
        off = self._that_do_not_fit(case, numbers[::-1])
        return sorted({max(off, default=-1) + 1, numbers[-1] + 1})

    def sized(self, case: Case) -> Self:
        self.on_cpu(case)
        return self

    def plan(self, case: Case) -> Plan:
        off, numbers = self.on_cpu(case), sorted(case.model.layers)
        on = [number for number in numbers if number not in off]
        sizes = {number: layer.expert_bytes * layer.n_experts for number, layer in case.model.layers.items()}
        policy: PlacedPolicy | Demand = Demand()
        if on:
            if on not in (numbers[: len(on)], numbers[-len(on) :]):
                raise BadInput(
                    f"-ot {self.ot!r}: leaves neither the first nor the last layers on the GPU; give such a pattern"
                )
            policy = PlacedPolicy("low" if on == numbers[: len(on)] else "high")
        bank = Bank(None, sum(sizes[number] for number in on) or 1)
        return Plan(Setup(bank, policy, "atomic"), PrefillCopy(self.copy_from_tokens(case)), self.adapted(case.machine))

    def copy_from_tokens(self, case: Case) -> int:
        """Tokens of a micro-batch from which the experts it uses are copied to the GPU."""
        return MIN_BATCH

    def memory(self, case: Case) -> tuple[Share, ...]:
        off = self.on_cpu(case)
        in_ram = sum(case.model.layers[number].expert_bytes * case.model.layers[number].n_experts for number in off)
        return (
            Share("experts", "gpu", case.model.routed_bytes - in_ram),
            *gpu_weights(case),
            Share("experts of the CPU", "mapped", in_ram),
        )

    def launch(self, case: Case) -> Launch:
        if self.ot:
            return Launch(llama_words(case, "-ngl", "99", "-ot", self.ot))
        if self.cpu_layers == AUTO:
            return Launch(llama_words(case))  # --fit is on
        return Launch(llama_words(case, "-ngl", "99", "--n-cpu-moe", str(self.cpu_layers)))

    def pattern(self, case: Case) -> str:
        """The placement as an argument of `-ot`, or empty if every expert is on the GPU."""
        off = self.on_cpu(case)
        return cpu_pattern(case.model, off) if off else ""


@dataclass(frozen=True, kw_only=True)
class PlacedIk(Placed):
    """As `placed`, in ik_llama.cpp: its --n-cpu-moe counts layers with experts from the last one on.

    cpu_layers: layers whose experts are on the CPU, as its `--n-cpu-moe` counts them since August 2026, on one GPU.
        -1: as few as leave the others room; the engine's own --fit is off by default.
    ot: an argument of `-ot` that decides instead.
    """

    name: ClassVar[str] = "placed-ik"
    title: ClassVar[str] = "ik_llama.cpp, experts placed by layer"
    engine: ClassVar[str] = "ik_llama.cpp"
    source: ClassVar[str] = "ikawrakow/ik_llama.cpp 8337e4cd3: llama-load-tensors.cpp:270-350, ggml-cuda.cu:5180"
    misses: ClassVar[str] = "computed on the CPU; copied to the GPU for prompts of many tokens"
    apis: ClassVar[tuple[str, ...]] = ("cuda",)

    def on_cpu(self, case: Case) -> list[int]:
        if self.ot or self.cpu_layers == AUTO:
            return super().on_cpu(case)
        return sorted(case.model.layers)[len(case.model.layers) - min(self.cpu_layers, len(case.model.layers)) :]

    def sizes(self, case: Case) -> Sequence[int]:
        return sorted({len(self._that_do_not_fit(case, sorted(case.model.layers))), len(case.model.layers)})

    def sized(self, case: Case) -> Self:
        if self.ot or self.cpu_layers != AUTO:
            return self
        return replace(self, cpu_layers=len(self.on_cpu(case)))

    def copy_from_tokens(self, case: Case) -> int:
        """Tokens x used experts must also reach 32 x experts."""
        return max(MIN_BATCH, -(-MIN_BATCH * case.n_experts // max(case.model.top_k, 1)))

    def launch(self, case: Case) -> Launch:
        if self.ot:
            return Launch(llama_words(case, "-ngl", "99", "-ot", self.ot))
        return Launch(llama_words(case, "-ngl", "99", "--n-cpu-moe", str(max(self.cpu_layers, 0))))
