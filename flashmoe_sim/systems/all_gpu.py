"""The whole model on the GPU."""

from __future__ import annotations

from dataclasses import dataclass

from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.residency.workload import Setup
from flashmoe_sim.systems.base import Case, Launch, Plan, Share, gpu_weights, llama_words
from flashmoe_sim.systems.split import Divided, of_other_gpus
from flashmoe_sim.timeline.models.resident import Resident


@dataclass(frozen=True, kw_only=True)
class AllGpu(Divided, program="llama-cpp", name="all-gpu"):
    """All weights are in GPU memory; nothing is missed. Of unlike GPUs, slow ones get as few layers as they can."""

    def plan(self, case: Case) -> Plan:
        setup = Setup(Bank(slots=case.n_experts), Lru(), "atomic")
        return Plan(setup, Resident(), self.machine_of(case))

    def memory(self, case: Case) -> tuple[Share, ...]:
        weights = gpu_weights(case, copies=False)
        of_others = of_other_gpus(case, case.compute_bytes(copies=False))
        return (Share("experts", "gpu", case.model.routed_bytes), *weights, *of_others)

    def launch(self, case: Case) -> Launch:
        others = ("--rpc", "RPC_HOSTS") if case.machine.machines > 1 else ()
        words = ("-ngl", "99", *others, *self.cut_words(case), *self.serving_words(case))
        return Launch(llama_words(case, *words))
