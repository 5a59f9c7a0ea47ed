"""leloch's llama.cpp: a cache of experts on the GPUs that fills by demand, beside the CPU."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from flashmoe_sim.geometry.compute_buffers import OFFLOAD_TOKENS
from flashmoe_sim.io.errors import Unsupported
from flashmoe_sim.io.sizes import MIB
from flashmoe_sim.policies.nth_miss import NthMiss
from flashmoe_sim.systems.base import Case, Launch, Share, halved, llama_words, no_room
from flashmoe_sim.systems.execution import FilledBehind
from flashmoe_sim.systems.gpu_slots import GpuCache
from flashmoe_sim.systems.published import PublishedRun
from flashmoe_sim.systems.split import besides, of_other_gpus, room_of_each

RESERVE_BYTES = 3072 * MIB  # of each GPU
LEAST_ENTRIES = 64  # matrices of one size and type that the cache holds, or it has none of them
LEAST_MATRIX_BYTES = MIB  # smaller ones are cached only if a variable says so
NOT_CACHED = {"F16", "BF16", "F32"}


@dataclass(frozen=True, kw_only=True)
class MoeCache(GpuCache, program="moe-cache"):
    """The experts used last of all layers are also on the GPUs, and experts that are missed repeatedly come in behind
    the calls; the CPU computes misses in parallel.

    The program keeps each matrix of an expert on its own, in pools of matrices of one size, and each layer on one GPU;
    here an expert is there as a whole, in one pool. It is there for the layer's next call, without the queue of uploads
    and their share of the bandwidth of RAM. Calls of more than 8 tokens bypass the cache. Prompts of 32 tokens and more
    have all their experts copied to the GPU, cached or not.

    cache_mib: on each GPU; left out: the program's automatic rule, all that is free but 3072 MiB.
    """

    cache_mib: int | None = None

    def why_not(self, case: Case) -> str:
        if kept_out := NOT_CACHED & {*case.model.quant.upper().split("+")}:
            return f"its cache takes no {', '.join(sorted(kept_out))}"
        if self.cache_mib is not None and self.cache_mib * MIB < (least := _least_bytes(case)):
            return f"{self.cache_mib} MiB; its cache begins with {-(-least // MIB)}"
        return super().why_not(case)

    def sizes(self, case: Case) -> Sequence[int]:
        return halved(self._most(case), least=-(-_least_bytes(case) // MIB))

    def own_size(self, case: Case) -> int:
        if (most := self._most(case)) * MIB < (least := _least_bytes(case)):
            raise no_room(f"a cache that begins with {-(-least // MIB):,} MiB", most * MIB)
        return most

    def _most(self, case: Case) -> int:
        gpus = case.machine.gpus
        room = room_of_each(case) - max(RESERVE_BYTES, case.spare_bytes // gpus)
        return min(max(room, 0), case.model.routed_bytes // gpus + MIB) // MIB

    def held_bytes(self, case: Case) -> int:
        return min(case.machine.gpus * self.chosen * MIB, case.model.routed_bytes)

    def policy(self, case: Case) -> NthMiss:
        return NthMiss(empty=1) if self.held_bytes(case) == case.model.routed_bytes else NthMiss()

    def execution(self, case: Case) -> FilledBehind:
        return FilledBehind(copy_from_tokens=OFFLOAD_TOKENS, pinned=self.loads_whole(case))

    def beside(self, case: Case) -> tuple[Share, ...]:
        return (*of_other_gpus(case, besides(case)), *super().beside(case))

    def launch(self, case: Case) -> Launch:
        words = ("-ngl", "99", "--cpu-moe", *self.serving_words(case), "--fit", "off")
        smallest = min(min(layer.family_bytes.values()) for layer in case.model.layers.values())
        small = {"GGML_CUDA_MOE_CACHE_MIN_EXPERT_KB": str(smallest // 1024)} if smallest < LEAST_MATRIX_BYTES else {}
        return Launch(llama_words(case, *words, "--moe-cache", str(self.cache_mib)), small)

    @classmethod
    def ran(cls, run: PublishedRun) -> Self:
        if re.search("drafter|RESERVE_MB|ADMIT_AFTER", run.flags):
            raise Unsupported(f"{run.where}: moe-cache has no settings for a drafter, the reserve or the admission")
        return cls(cache_mib=run.number_after("cache "))


def _least_bytes(case: Case) -> int:
    """The smallest cache: every pool, which has its share of the bytes, must hold 64 matrices."""
    layers = case.model.layers.values()
    return max(
        LEAST_ENTRIES * layer.expert_bytes // min(Counter(layer.family_bytes.values()).values()) for layer in layers
    )
