"""flash-moe: no cache of its own, only the page cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from flashmoe_sim.parameters import Limits
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.demand import Demand
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.systems.base import Case, Launch, Plan, Share, System
from flashmoe_sim.systems.published import RanAs
from flashmoe_sim.timeline.models.page_cache import PageCache
from flashmoe_sim.trace.cut import cut

MOST_EXPERTS = 8


@dataclass(frozen=True, kw_only=True)
class FlashMoe(System):
    """Every expert of every call is read, all of a call at once; the operating system's page cache is the only cache.

    top_k: experts per token, at most 8.
    """

    name: ClassVar[str] = "flash-moe"
    title: ClassVar[str] = "flash-moe, page cache only"
    engine: ClassVar[str] = "flash-moe"
    program: ClassVar[str] = "flash-moe"
    source: ClassVar[str] = "danveloper/flash-moe 3601d41: infer.m:5268-5290, 6508-6590"
    keeps: ClassVar[str] = "nothing; the page cache holds what was read"
    misses: ClassVar[str] = "read through the page cache"
    limits: ClassVar[Limits] = {"top_k": (1, MOST_EXPERTS)}
    caches: ClassVar[bool] = False
    own_gpu: ClassVar[bool | None] = False

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
        if self.top_k >= workload.trace.top_k:
            return workload
        return prepare(cut(workload.trace, top_k=self.top_k), workload.geometry)

    def launch(self, case: Case) -> Launch:
        return Launch(("./infer", "--model", "PACKED_MODEL", "--k", str(self.top_k), "--serve", "8000"))

    ran_as: ClassVar[RanAs] = {"flash-moe": ("page_cache_mmap", "ssd_stream")}
