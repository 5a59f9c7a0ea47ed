"""llama.cpp's own cache of experts: slots for all layers on the GPU, and every miss uploaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.io.sizes import MIB
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.residency.replay import Replay
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
from flashmoe_sim.systems.split import besides, of_other_gpus, rooms

MOST_TOKENS = 32  # of a call that uses the cache


@dataclass(frozen=True, kw_only=True)
class Cached(System):
    """The experts used last of all layers are in slots on the GPUs, which compute everything; misses are uploaded from
    RAM.

    Builds from 11480 on, of October 2026, have it. The engine gives layers whose experts have different sizes, and
    every GPU, a cache of their own with the same share of the experts; here one cache is for all. Of the misses of a
    call, the last by number counts as used last; here it is the last that the router names. Calls of more than 32
    tokens copy the experts that they use to the GPU, those in the cache from there, and change nothing in it; here they
    copy all from RAM.

    cache_mib: of all GPUs together; 0: as much as there is room for. The engine has no cache unless a size is given.
    """

    name: ClassVar[str] = "cached"
    title: ClassVar[str] = "llama.cpp, its cache of experts"
    engine: ClassVar[str] = "llama.cpp"
    program: ClassVar[str] = "llama-cpp"
    source: ClassVar[str] = "ggml-org/llama.cpp 4b060f27a: src/llama-moe-cache.cpp"
    keeps: ClassVar[str] = "copies of the experts used last, of all layers together, in GPU memory"
    misses: ClassVar[str] = "uploaded from RAM and computed on the GPU"
    size: ClassVar[str] = "cache_mib"
    own_gpu: ClassVar[bool | None] = True
    several_gpus: ClassVar[bool] = True
    costs: ClassVar[tuple[Cost, ...]] = (PAGE_FAULTS,)

    cache_mib: int = 0

    def __post_init__(self) -> None:
        if self.cache_mib < 0:
            raise BadInput(f"system cached: cache_mib {self.cache_mib}; expected 0 or more")

    def why_not(self, case: Case) -> str:
        least = -(-_least_bytes(case) // MIB)
        if 0 < self.cache_mib < least:
            return f"{self.cache_mib} MiB; the experts of a token in one layer take {least}"
        return super().why_not(case)

    def sizes(self, case: Case) -> Sequence[int]:
        return halved(self._most(case), least=-(-_least_bytes(case) // MIB))

    def sized(self, case: Case) -> Self:
        if self.cache_mib:
            return self
        if (most := self._most(case)) * MIB < _least_bytes(case):
            raise no_room("a cache on the GPU", most * MIB)
        return replace(self, cache_mib=most)

    def _most(self, case: Case) -> int:
        """Each GPU holds its layers and as much of the cache as the others."""
        gpus = case.machine.gpus
        weights = (case.gpu_dense_bytes + case.kv_bytes + case.drafter_bytes) // gpus
        left = min(rooms(case, case.spare_bytes)) - weights - besides(case)
        return max(min(gpus * left // MIB, -(-case.model.routed_bytes // MIB)), 0)

    def _cache_bytes(self, case: Case) -> int:
        return min(self.cache_mib * MIB, case.model.routed_bytes)

    def plan(self, case: Case) -> Plan:
        setup = Setup(Bank(None, self._cache_bytes(case)), Lru(stamp="hits-first"), "atomic", scope="global")
        pinned = self.loads_whole(case)
        return Plan(setup, CopiedFromFile(pinned=pinned), self.adapted(case.machine))

    def replay(self, workload: Workload, setup: Setup) -> Replay:
        return replay_in_parts(workload, setup, [np.flatnonzero(workload.trace.n_tokens <= MOST_TOKENS)])

    def memory(self, case: Case) -> tuple[Share, ...]:
        return (
            Share("cached experts", "gpu", self._cache_bytes(case)),
            *gpu_weights(case),
            *of_other_gpus(case, besides(case)),
            Share("experts", "mapped", case.model.routed_bytes),
        )

    def launch(self, case: Case) -> Launch:
        words = ("-ngl", "99", "--cpu-moe", *self.serving_words(case), "--moe-cache-mib", str(self.cache_mib))
        return Launch(llama_words(case, *words))


def _least_bytes(case: Case) -> int:
    return (case.model.top_k or 1) * max(layer.expert_bytes for layer in case.model.layers.values())
