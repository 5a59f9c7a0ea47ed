"""Tether's llama.cpp: the cache of experts that llama.cpp has too, also for prompts and of a size that it chooses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from flashmoe_sim.io.sizes import MIB
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.residency.replay import Replayed
from flashmoe_sim.residency.workload import Setup, Workload
from flashmoe_sim.systems.base import Case
from flashmoe_sim.systems.execution import CopiedFromFile
from flashmoe_sim.systems.gpu_slots import UploadedMisses
from flashmoe_sim.systems.in_parts import replay_in_parts
from flashmoe_sim.systems.published import PublishedRun
from flashmoe_sim.systems.workloads import by_number

SHARE = 0.1  # of the bytes of all experts, for the cache that `--fit` chooses


@dataclass(frozen=True, kw_only=True)
class Qvac(UploadedMisses, program="qvac"):
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

    def prepared(self, workload: Workload) -> Workload:
        return by_number(workload)

    def sizes(self, case: Case) -> Sequence[int]:
        return ()  # its own rule is tried

    def sized(self, case: Case) -> Self:
        if self.size_given:
            return self
        of_rule = replace(self, cache_mib=max(int(SHARE * case.model.routed_bytes) // MIB, self.least_mib(case)))
        if self.cpu_layers is not None:
            return of_rule
        cut = (
            replace(of_rule, cpu_layers=count)
            for count in range(min(case.model.layers) + 1, max(case.model.layers) + 2)
        )
        fits = next((one for one in cut if one.left_bytes(case) >= one.held_bytes(case)), None)
        return fits or super().sized(case)

    def least_mib(self, case: Case) -> int:
        slots = (case.model.top_k or 1) + self.reserved
        return -(-slots * case.expert_bytes // MIB)

    def whole_mib(self, case: Case) -> int:
        routed_bytes = case.model.routed_bytes - self.placed_bytes(case) + self.reserved * case.expert_bytes
        return -(-routed_bytes // MIB)

    def held_bytes(self, case: Case) -> int:
        return self.slots_bytes(case) + self.reserved * case.expert_bytes

    def slots_bytes(self, case: Case) -> int:
        slots_bytes = self.chosen * MIB - self.reserved * case.expert_bytes
        return min(slots_bytes, case.model.routed_bytes - self.placed_bytes(case))

    def policy(self, case: Case) -> Lru:
        return Lru(stamp="hits-first")

    def execution(self, case: Case) -> CopiedFromFile:
        return CopiedFromFile(pinned=self.loads_whole(case))

    def replay(self, workload: Workload, setup: Setup) -> Replayed:
        placed = self.placed_calls(workload.trace)
        use = ~placed
        assert workload.expert_bytes is not None
        slots = (setup.bank.budget_bytes or 0) // max(workload.expert_bytes)
        for pool in workload.layer_pools:
            use[pool.call[pool.requests > slots]] = False
        return replay_in_parts(workload, setup, [np.flatnonzero(use)], placed=np.flatnonzero(placed))

    @classmethod
    def ran(cls, run: PublishedRun) -> Self:
        """By its own rule if it fits itself."""
        cache_mib = run.number_after("--moe-cache-mib ", "cache ")
        if cache_mib is None or "--fit on" in run.flags:
            return cls()
        return cls(cache_mib=cache_mib, cpu_layers=run.cpu_layers)
