"""flash-moe: no cache of its own, only the page cache."""

from __future__ import annotations

from dataclasses import dataclass

from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.demand import Demand
from flashmoe_sim.residency.workload import Setup, Workload
from flashmoe_sim.systems.base import Case, Launch, Plan, Share, System
from flashmoe_sim.systems.workloads import with_fewer
from flashmoe_sim.timeline.models.page_cache import PageCache

MOST_EXPERTS = 8


@dataclass(frozen=True, kw_only=True)
class FlashMoe(System, program="flash-moe"):
    """Every expert of every call is read, all of a call at once; the operating system's page cache is the only cache.

    top_k: experts per token, at most 8.
    """

    top_k: int = 4

    def plan(self, case: Case) -> Plan:
        return Plan(Setup(Bank(slots=1), Demand(), "atomic"), PageCache(), self.adapted(case.machine))

    def memory(self, case: Case) -> tuple[Share, ...]:
        return (
            Share("dense weights", "gpu", case.dense_bytes),
            Share("context", "gpu", case.kv_bytes),
            Share("experts", "mapped", case.model.routed_bytes),
        )

    def prepared(self, workload: Workload) -> Workload:
        return with_fewer(workload, self.top_k)

    def launch(self, case: Case) -> Launch:
        return Launch(("./infer", "--model", "PACKED_MODEL", "--k", str(self.top_k), "--serve", "8000"))
