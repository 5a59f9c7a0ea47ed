"""TurboFieldfare: a few slots per layer on Apple silicon; the least frequently used expert is evicted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from flashmoe_sim.io.errors import OutOfRange
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.lfu import Lfu
from flashmoe_sim.residency.workload import Setup
from flashmoe_sim.systems.base import Case, Launch, Plan, Share, System
from flashmoe_sim.systems.execution import ReadIntoSlots
from flashmoe_sim.systems.facts import facts_of
from flashmoe_sim.systems.published import PublishedRun

CONTEXTS = (4096, 8192, 16384, 32768, 65536)
SLOTS_FOR_BATCHES = 16


@dataclass(frozen=True, kw_only=True)
class TurboFieldfare(System, program="turbofieldfare"):
    """Every layer has a few slots, the least frequently used expert is evicted, and misses are read straight into
    slots.

    Among equally used experts, the one used longest ago is evicted. The engine does not say whether an expert that
    comes back keeps its count; here it does.

    slots: per layer: 8, 16, 24 or 32.
    """

    slots: int = 16

    def __post_init__(self) -> None:
        if self.slots not in (allowed := facts_of(self.program).sizes.allowed):
            raise OutOfRange(f"system turbofieldfare: slots {self.slots}; expected {', '.join(map(str, allowed))}")

    def why_not(self, case: Case) -> str:
        if case.context > CONTEXTS[-1]:
            return f"a context of {case.context} tokens; the engine has at most {CONTEXTS[-1]}"
        return super().why_not(case)

    def sizes(self, case: Case) -> Sequence[int]:
        return facts_of(self.program).sizes.allowed

    def plan(self, case: Case) -> Plan:
        setup = Setup(Bank(slots=min(self.slots, case.n_experts)), Lfu(), "atomic")
        return Plan(setup, ReadIntoSlots(), self.adapted(case.machine))

    def memory(self, case: Case) -> tuple[Share, ...]:
        return (
            Share("slots", "gpu", min(self.slots, case.n_experts) * case.slot_bytes),
            Share("dense weights", "gpu", case.dense_bytes),
            Share("context", "gpu", case.kv_bytes),
            Share("experts", "mapped", case.model.routed_bytes),
        )

    def launch(self, case: Case) -> Launch:
        words = ["TurboFieldfareServer", "--model", "MODEL.gturbo", "--expert-cache-slots", str(self.slots)]
        if case.context:
            words += ["--max-context", str(next(size for size in CONTEXTS if size >= case.context))]
        words += ["--prefill", "off"] if self.slots < SLOTS_FOR_BATCHES else []
        return Launch(tuple(words))

    @classmethod
    def ran(cls, run: PublishedRun) -> Self:
        return cls(slots=run.slots)
