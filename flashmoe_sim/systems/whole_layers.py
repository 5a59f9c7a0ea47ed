"""Whole layers on the GPU, the others on the CPU."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

from flashmoe_sim.geometry.model import DEFAULT_TYPE
from flashmoe_sim.io.errors import Unsupported
from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.machines.cards import mean_rate
from flashmoe_sim.machines.estimates import estimate
from flashmoe_sim.machines.machine import Machine, Quantity
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.demand import Demand
from flashmoe_sim.residency.workload import Setup
from flashmoe_sim.systems.base import Case, Launch, Plan, Share, System, drafter_share, llama_words
from flashmoe_sim.systems.placed import MIN_BATCH, TheseLayers
from flashmoe_sim.systems.published import PublishedRun
from flashmoe_sim.timeline.models.prefill_copy import PrefillCopy

_ON_CPU = re.compile(r"(\d+) ?%(?: ?/ ?\d+ ?%)? CPU")  # also as `ollama ps` prints it: 48%/52% CPU/GPU
_OF_LAYERS = re.compile(r"(\d+)(?: (?:out )?of |/)\d+ layers (?:on|to) (?:the )?GPU", re.IGNORECASE)
_NUM_GPU = re.compile(r"\bnum_gpu[ =:]+(\d+)")


@dataclass(frozen=True, kw_only=True)
class WholeLayers(System, program="llama-cpp", name="whole-layers"):
    """The last layers are on the GPU as a whole, and the CPU computes the others with their attention and context.

    `num_gpu` of Ollama and the slider of LM Studio set the same. All layers count the same dense weights, and the
    output counts as one more layer.

    gpu_layers: layers on the GPU, as in `-ngl`: the output and the layers before it; left out: as many as fit.
    """

    gpu_layers: int | None = None

    def why_not(self, case: Case) -> str:
        if case.machine.cards:
            return "is known for equal GPUs only"
        if case.machine.cpu is None or case.machine.cpu.weights_gb_s is None:
            return "needs a CPU that the machine's file describes"
        return super().why_not(case)

    def _fits(self, case: Case) -> bool:
        on_gpu = sum(share.size_bytes for share in self.memory(case) if share.where == "gpu")
        return on_gpu <= case.gpu_bytes - case.spare_bytes

    def sizes(self, case: Case) -> Sequence[int]:
        every = max(case.model.layers) + 2
        if self.of_size(every)._fits(case):
            raise Unsupported("has room for every layer, which is all-gpu")
        return [next((count for count in range(every - 1, 0, -1) if self.of_size(count)._fits(case)), 0)]

    def own_size(self, case: Case) -> int:
        return self.sizes(case)[0]

    def _on_gpu(self, case: Case) -> range:
        """The layers on the GPU."""
        layers = max(case.model.layers) + 1
        return range(max(layers + 1 - self.chosen, 0), layers)

    def _expert_bytes(self, case: Case) -> int:
        """Bytes of the experts of the GPU's layers."""
        return case.experts_bytes(number for number in self._on_gpu(case) if number in case.model.layers)

    def _beside_experts(self, case: Case) -> tuple[int, int]:
        """Bytes of dense weights, without the embeddings, and of the context of the CPU's layers."""
        layers = max(case.model.layers) + 1
        off = layers - len(self._on_gpu(case))
        dense = (off + (not self.chosen)) * case.gpu_dense_bytes // (layers + 1)
        return dense, off * case.kv_bytes // layers

    def plan(self, case: Case) -> Plan:
        on, layers = self._on_gpu(case), case.model.layers
        rows = tuple(row for row, number in enumerate(sorted(layers)) if number in on)
        held = self._expert_bytes(case)
        policy = TheseLayers(rows=rows) if rows else Demand()
        execution = PrefillCopy(MIN_BATCH, self.loads_whole(case))
        return Plan(Setup(Bank(None, held or 1), policy, "atomic"), execution, self.machine_of(case))

    def machine_of(self, case: Case) -> Machine:
        """The machine whose GPU is as fast as it and the CPU together are beside the experts of the CPU's layers."""
        gpu, cpu, model, on = case.machine.gpu, case.machine.cpu, case.model, self._on_gpu(case)
        assert gpu is not None
        assert cpu is not None
        off = max(model.layers) + 1 - len(on)
        of_cpu, _ = self._beside_experts(case)
        of_gpu = case.gpu_dense_bytes - of_cpu
        of_gpu += sum(model.layers[number].expert_bytes * model.top_k for number in on if number in model.layers)
        steps_us = 1e6 * (estimate("graph.cpu_s", model.arch).value - estimate("graph.gpu_s", model.arch).value)

        def layer_us(each: Sequence[float]) -> float:
            return max(len(on) * each[0] + off * (each[1] + steps_us), 0.0) / (len(on) + off)

        machine = case.machine.with_quantity("gpu.layer_us", _both(gpu.layer_us, cpu.layer_us, layer_us))
        for path, one, other, parts in (
            ("gpu.weights_gb_s", gpu.weights_gb_s, cpu.weights_gb_s, (of_gpu, of_cpu)),
            ("gpu.attention_gb_s", gpu.attention_gb_s, cpu.attention_gb_s, (len(on), off)),
        ):
            if one is not None and other is not None:
                machine = machine.with_quantity(path, _both(one, other, partial(mean_rate, shares=parts)))
        return self.adapted(_without_ram(machine, sum(self._beside_experts(case))))

    def memory(self, case: Case) -> tuple[Share, ...]:
        experts = self._expert_bytes(case)
        dense, context = self._beside_experts(case)
        return (
            Share("experts", "gpu", experts),
            Share("dense weights", "gpu", case.gpu_dense_bytes - dense),
            Share("context", "gpu", case.kv_bytes - context),
            Share("compute buffers", "gpu", case.machine.gpus * case.compute_bytes()),
            *drafter_share(case, "gpu"),
            Share("dense weights of the CPU", "ram", case.dense_bytes - case.gpu_dense_bytes + dense),
            Share("context of the CPU", "ram", context),
            Share("experts of the CPU", "mapped", case.model.routed_bytes - experts),
        )

    def launch(self, case: Case) -> Launch:
        return Launch(llama_words(case, "-ngl", str(self.gpu_layers), *self.serving_words(case)))

    @classmethod
    def ran(cls, run: PublishedRun) -> Self:
        if (given := run.gpu_layers) is None:
            raise Unsupported(f"{run.where}: does not say how many layers the GPU has")
        return cls(gpu_layers=given)


@dataclass(frozen=True, kw_only=True)
class OllamaLayers(WholeLayers, program="ollama", name="ollama-layers"):
    """As `whole-layers`, by Ollama up to 0.29, which fills the GPU by itself.

    From 0.30 on it is llama.cpp's own server, whose --fit decides: `placed`, and `num_gpu` makes it `whole-layers`.

    gpu_layers: layers on the GPU, as `num_gpu` has them; left out: as many as fit.
    """

    def launch(self, case: Case) -> Launch:
        context = {"OLLAMA_CONTEXT_LENGTH": str(case.context)} if case.context else {}
        kv_type = {} if case.kv_type == DEFAULT_TYPE else {"OLLAMA_KV_CACHE_TYPE": case.kv_type}
        return Launch(("ollama", "serve"), context | kv_type)

    @classmethod
    def ran(cls, run: PublishedRun) -> Self:
        """With the layers of its log, or the share of the CPU that `ollama ps` shows; else as many as fit."""
        if told := _OF_LAYERS.search(run.flags) or _NUM_GPU.search(run.flags):
            return cls(gpu_layers=int(told[1]))
        if share := _ON_CPU.search(run.flags):
            return cls(gpu_layers=round((max(run.model.layers) + 2) * (1 - int(share[1]) / 100)))
        return cls()


def _without_ram(machine: Machine, size_bytes: int) -> Machine:
    """The machine without the RAM that holds these bytes."""
    if machine.memory is None:
        return machine
    ram_gib = machine.memory.ram_gib
    return machine.varied("memory.ram_gib", max(ram_gib.value - size_bytes / GIB, 0.0))


def _both(gpu: Quantity, cpu: Quantity, mean: Callable[[Sequence[float]], float]) -> Quantity:
    """The GPU's quantity as the mean of both, end by end."""
    lo, value, hi = (mean(each) for each in ((gpu.lo, cpu.lo), (gpu.value, cpu.value), (gpu.hi, cpu.hi)))
    return replace(gpu, value=value, lo=lo, hi=hi)
