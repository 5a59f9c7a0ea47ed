"""MLX: the whole model on the GPU of a Mac, in MLX's own quantizations."""

from __future__ import annotations

from dataclasses import dataclass

from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.residency.workload import Setup, Workload
from flashmoe_sim.systems.base import Case, Launch, Plan, Share, System, gpu_weights
from flashmoe_sim.systems.workloads import batched
from flashmoe_sim.timeline.models.resident import Resident

CHUNK = 2048  # tokens of a prompt that are computed together
SHARED_EACH, SHARED_LEAST = 4, 64  # references for each expert, and at least, from which tokens share its reads
TILE = 16  # tokens that share one
OF_VLM = ("qwen4exp", "glm5next")  # architectures of mlx-vlm alone, which has a server like that of mlx-lm


@dataclass(frozen=True, kw_only=True)
class Mlx(System, program="mlx"):
    """All weights are in the memory of a Mac's GPU, up to its wired limit; nothing is missed.

    In a pass that verifies a few drafted tokens, every token reads its own experts, also those that another one reads.
    Of a prompt, 16 tokens share what they read of an expert.
    """

    def plan(self, case: Case) -> Plan:
        setup = Setup(Bank(slots=case.n_experts), Lru(), "atomic")
        shared_from = max(SHARED_EACH * case.n_experts, SHARED_LEAST)
        return Plan(setup, Resident(shared_from=shared_from, shared_by=TILE), self.adapted(case.machine))

    def prepared(self, workload: Workload) -> Workload:
        return batched(workload, CHUNK)

    def memory(self, case: Case) -> tuple[Share, ...]:
        return (Share("experts", "gpu", case.model.routed_bytes), *gpu_weights(case, copies=False))

    def launch(self, case: Case) -> Launch:
        server = "mlx_vlm.server" if case.model.arch in OF_VLM else "mlx_lm.server"
        return Launch((server, "--model", case.model.repository or "MLX_MODEL"))
