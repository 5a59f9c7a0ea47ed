"""Tether's llama.cpp: the cache of experts that llama.cpp has too, also for prompts and of a size that it chooses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.sizes import MIB
from flashmoe_sim.residency.pool import Pool
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.systems.base import Case
from flashmoe_sim.systems.cached import Cached
from flashmoe_sim.systems.published import PublishedRun, RanAs

SHARE = 0.1  # of the bytes of all experts, for the cache that `--fit` chooses


@dataclass(frozen=True, kw_only=True)
class Qvac(Cached):
    """Some layers have all experts on the GPU; of the others, the experts used last are in slots there, and misses are
    uploaded from RAM.

    All calls use the cache, prompts too, unless they need more experts than there are slots. Of a call, the hits count
    as used first, then the misses, both by number. One slot is reserved. The engine caches only layers whose experts
    have the size that most layers' have; here one cache is for all. The engine claims that a prompt does not evict the
    experts of the text; its published code does not show how.

    cache_mib: left out: the engine's rule under `--fit`, a tenth of the bytes of all experts.
    cpu_layers: layers whose experts are in RAM and in the cache, from layer 0 on; left out: all layers, or by that rule
        as few as leave room for the cache.
    """

    name: ClassVar[str] = "qvac"
    title: ClassVar[str] = "Tether's llama.cpp, its cache of experts"
    engine: ClassVar[str] = "llama.cpp, Tether's fork"
    program: ClassVar[str] = "qvac"
    source: ClassVar[str] = "tetherto/qvac-fabric-llm.cpp 06560fb74: src/llama-moe-cache.cpp, pull requests 232 and 237"
    keeps: ClassVar[str] = "all experts of some layers, and copies of the others used last, in GPU memory"
    several_gpus: ClassVar[bool] = False
    builds: ClassVar[str] = ""
    most_tokens: ClassVar[float] = inf
    stamp: ClassVar[str] = "hits-first"

    def prepared(self, workload: Workload) -> Workload:
        return by_number(workload)

    def needed(self, workload: Workload, pool: Pool) -> NDArray[np.integer]:
        return pool.requests

    def sizes(self, case: Case) -> Sequence[int]:
        return ()  # its own rule is tried

    def sized(self, case: Case) -> Self:
        if self.size_given:
            return self
        of_rule = replace(self, cache_mib=max(int(SHARE * case.model.routed_bytes) // MIB, self._least_mib(case)))
        if self.cpu_layers is not None:
            return of_rule
        cut = (
            replace(of_rule, cpu_layers=count)
            for count in range(min(case.model.layers) + 1, max(case.model.layers) + 2)
        )
        fits = next((one for one in cut if one.left_bytes(case) >= one.cache_bytes(case)), None)
        return fits or super().sized(case)

    ran_as: ClassVar[RanAs] = {"qvac-fabric-llm.cpp": ("vram_lru",)}

    @classmethod
    def ran(cls, run: PublishedRun) -> Self:
        """By its own rule if it fits itself."""
        cache_mib = run.number_after("--moe-cache-mib ", "cache ")
        if cache_mib is None or "--fit on" in run.flags:
            return cls()
        return cls(cache_mib=cache_mib, cpu_layers=run.cpu_layers)


@lru_cache(maxsize=4)
def by_number(workload: Workload) -> Workload:
    """The workload with the experts of every call in ascending order."""
    trace = workload.trace
    call = np.repeat(np.arange(trace.calls), np.diff(trace.offset))
    order = np.lexsort((trace.expert, call))
    weight = None if trace.weight is None else trace.weight[order]
    ordered = trace.with_(expert=trace.expert[order], weight=weight, slot=None, resident=None)
    return prepare(ordered, workload.geometry)
