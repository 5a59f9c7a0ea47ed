"""llama.cpp's own cache of experts: slots for all layers on the GPU, and every miss uploaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.io.sizes import MIB
from flashmoe_sim.parameters import INT32, Limits
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.residency.pool import Pool
from flashmoe_sim.residency.replay import Replayed
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.systems.base import (
    PAGE_FAULTS,
    Case,
    Cost,
    Launch,
    Plan,
    Share,
    System,
    gpu_weights,
    halved,
    llama_words,
    no_room,
)
from flashmoe_sim.systems.execution import CopiedFromFile
from flashmoe_sim.systems.parts import replay_in_parts
from flashmoe_sim.systems.published import PublishedRun, RanAs
from flashmoe_sim.systems.split import besides, of_other_gpus, rooms


@dataclass(frozen=True, kw_only=True)
class Cached(System):
    """The experts used last of all layers are in slots on the GPUs, which compute everything; misses are uploaded from
    RAM.

    This is the rule of builds 11480 to 12169, of October 2026; later builds evict by another one, and can compute
    misses on the CPU. The engine gives layers whose experts have different sizes, and every GPU, a cache of their own
    with the same share of the experts; here one cache is for all. Of a call, the hits count as used first, by first
    reference, then the misses, by number. One slot is reserved. Calls of more than 32 tokens copy the experts that they
    use to the GPU, those in the cache from there, and change nothing in it; here they copy all from RAM. So do calls
    that could need more experts than there are slots: as many as tokens times top-k, at most all of a layer.

    cache_mib: of all GPUs together; left out: as much as there is room for. The engine has no cache unless a size is
        given, and does not start with one for fewer than the experts of a token and one more.
    cpu_layers: layers whose experts are in RAM and in the cache, from layer 0 on, as in `--n-cpu-moe`; the others have
        theirs on the GPU. Left out: all layers. For one GPU.
    """

    name: ClassVar[str] = "cached"
    title: ClassVar[str] = "llama.cpp, its cache of experts"
    engine: ClassVar[str] = "llama.cpp"
    program: ClassVar[str] = "llama-cpp"
    source: ClassVar[str] = "ggml-org/llama.cpp 4b060f27a: src/llama-moe-cache.cpp"
    keeps: ClassVar[str] = "copies of the experts used last, of all layers together, in GPU memory"
    misses: ClassVar[str] = "uploaded from RAM and computed on the GPU"
    limits: ClassVar[Limits] = {"cache_mib": (1, INT32), "cpu_layers": (1, INT32)}
    size: ClassVar[str] = "cache_mib"
    own_gpu: ClassVar[bool | None] = True
    several_gpus: ClassVar[bool] = True
    costs: ClassVar[tuple[Cost, ...]] = (PAGE_FAULTS,)
    builds: ClassVar[str] = "the rule of builds 11480 to 12169; later ones evict by another"
    reserved: ClassVar[int] = 1  # slots that no expert gets
    most_tokens: ClassVar[float] = 32  # of a call that uses the cache
    stamp: ClassVar[str] = "hits-first-sorted"

    cache_mib: int | None = None
    cpu_layers: int | None = None

    def why_not(self, case: Case) -> str:
        least = self._least_mib(case)
        if self.cache_mib is not None and self.cache_mib < least:
            return (
                f"{self.cache_mib} MiB; the experts of a token in one layer and one reserved slot take {least}; give "
                f"cache_mib={least} or more"
            )
        if self.placed_bytes(case) == case.model.routed_bytes:
            return f"no layer below {self.cpu_layers} has experts, so there is nothing to cache"
        if self.cpu_layers is not None and case.machine.gpus > 1:
            return f"with cpu_layers, it is known for one GPU only; the machine has {case.machine.gpus}"
        return super().why_not(case)

    def sizes(self, case: Case) -> Sequence[int]:
        return halved(self._most_mib(case), least=self._least_mib(case))

    def sized(self, case: Case) -> Self:
        if self.size_given:
            return self
        if (most := self._most_mib(case)) < self._least_mib(case):
            raise no_room("a cache on the GPU", most * MIB)
        return replace(self, cache_mib=most)

    def _least_mib(self, case: Case) -> int:
        """A cache for the experts of a token in one layer."""
        slots = (case.model.top_k or 1) + self.reserved
        return -(-slots * _largest_expert(case) // MIB)

    def _most_mib(self, case: Case) -> int:
        routed_bytes = case.model.routed_bytes - self.placed_bytes(case) + self.reserved * _largest_expert(case)
        return max(min(self.left_bytes(case) // MIB, -(-routed_bytes // MIB)), 0)

    def left_bytes(self, case: Case) -> int:
        """GPU memory for the cache: each GPU holds its layers and as much of the cache as the others."""
        gpus = case.machine.gpus
        weights = (case.gpu_dense_bytes + case.kv_bytes + case.drafter_bytes) // gpus
        return gpus * (min(rooms(case, case.spare_bytes)) - weights - besides(case)) - self.placed_bytes(case)

    def placed_bytes(self, case: Case) -> int:
        """Bytes of the layers whose experts are all on the GPU."""
        if self.cpu_layers is None:
            return 0
        layers = [layer for number, layer in case.model.layers.items() if number >= self.cpu_layers]
        return sum(layer.expert_bytes * layer.n_experts for layer in layers)

    def slots_bytes(self, case: Case) -> int:
        """Bytes of the slots that experts get."""
        slots_bytes = self.chosen * MIB - self.reserved * _largest_expert(case)
        return min(slots_bytes, case.model.routed_bytes - self.placed_bytes(case))

    def cache_bytes(self, case: Case) -> int:
        """Bytes of all slots."""
        return self.slots_bytes(case) + self.reserved * _largest_expert(case)

    def plan(self, case: Case) -> Plan:
        setup = Setup(Bank(None, self.slots_bytes(case)), Lru(stamp=self.stamp), "atomic", scope="global")
        pinned = self.loads_whole(case)
        return Plan(setup, CopiedFromFile(pinned=pinned), self.adapted(case.machine))

    def replay(self, workload: Workload, setup: Setup) -> Replayed:
        trace = workload.trace
        placed = trace.layer >= (np.inf if self.cpu_layers is None else self.cpu_layers)
        use = ~placed & (trace.n_tokens <= self.most_tokens)
        assert workload.expert_bytes is not None
        slots = (setup.bank.budget_bytes or 0) // max(workload.expert_bytes)
        for pool in workload.layer_pools:
            use[pool.call[self.needed(workload, pool) > slots]] = False
        return replay_in_parts(workload, setup, [np.flatnonzero(use)], placed=np.flatnonzero(placed))

    def needed(self, workload: Workload, pool: Pool) -> NDArray[np.integer]:
        """The experts of each call of a layer for which there must be slots, whole numbers [calls]."""
        references = np.diff(workload.trace.offset)[pool.call]
        return np.minimum(references, workload.trace.n_experts[int(workload.trace.layer[pool.call[0]])])

    def memory(self, case: Case) -> tuple[Share, ...]:
        placed_bytes = self.placed_bytes(case)
        placed = (Share("experts of whole layers", "gpu", placed_bytes),) if placed_bytes else ()
        return (
            Share("cached experts", "gpu", self.cache_bytes(case)),
            *placed,
            *gpu_weights(case),
            *of_other_gpus(case, besides(case)),
            Share("experts", "mapped", case.model.routed_bytes - placed_bytes),
        )

    def launch(self, case: Case) -> Launch:
        in_ram = ("--cpu-moe",) if self.cpu_layers is None else ("--n-cpu-moe", str(self.cpu_layers))
        words = ("-ngl", "99", *in_ram, *self.serving_words(case), "--moe-cache-mib", str(self.cache_mib))
        return Launch(llama_words(case, *words))

    ran_as: ClassVar[RanAs] = {"llama.cpp": ("vram_lru",)}

    @classmethod
    def ran(cls, run: PublishedRun) -> Self:
        if "fork" in run.engine.lower():  # has a cache of its own
            raise BadInput(f"{run.where}: no system runs {run.engine} as {run.strategy}")
        return cls(cache_mib=run.number_after("--moe-cache-mib ", "cache "))


def _largest_expert(case: Case) -> int:
    return max(layer.expert_bytes for layer in case.model.layers.values())
