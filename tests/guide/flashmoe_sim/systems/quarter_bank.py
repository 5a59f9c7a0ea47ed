"""Slots for a quarter of the experts."""

from __future__ import annotations

from dataclasses import dataclass

from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.residency.workload import Setup
from flashmoe_sim.systems.base import Case, Launch, Plan, Share, System, gpu_weights, llama_words
from flashmoe_sim.timeline.models.parallel_install import ParallelInstall


@dataclass(frozen=True, kw_only=True)
class QuarterBank(System, program="quarter-bank"):
    """Every layer has slots for a quarter of its experts; all misses of a call are read at once.

    io_split: most chunks that a tensor family of an expert is read in.
    """

    io_split: int = 4

    def plan(self, case: Case) -> Plan:
        setup = Setup(Bank(slots=case.n_experts // 4), Lru(), "atomic", io_split=self.io_split)
        return Plan(setup, ParallelInstall(), self.adapted(case.machine))

    def memory(self, case: Case) -> tuple[Share, ...]:
        return (Share("slots", "gpu", case.n_experts // 4 * case.slot_bytes), *gpu_weights(case))

    def launch(self, case: Case) -> Launch:
        return Launch(llama_words(case, "--io-split", str(self.io_split), program="quarter-bank"))
