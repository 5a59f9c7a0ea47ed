"""What systems with slots of every layer on the GPU have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.base import Policy
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.systems.base import Case, Plan, Share, System, gpu_left, gpu_weights, ladder, no_room
from flashmoe_sim.systems.published import PublishedRun
from flashmoe_sim.timeline.models.base import ExecutionModel


@dataclass(frozen=True, kw_only=True)
class GpuSlots(System):
    """Every layer has equally many slots on a GPU with its own memory; `size` is their number, None for all.

    held, others: what its memory calls the experts in slots, and those in the mapped file.
    """

    size: ClassVar[str] = "slots"
    own_gpu: ClassVar[bool | None] = True
    held: ClassVar[str] = "slots"
    others: ClassVar[str] = "experts"

    @abstractmethod
    def policy(self, case: Case) -> Policy:
        """Which experts are in the slots."""

    @abstractmethod
    def execution(self, case: Case) -> ExecutionModel:
        """The order of events of a call."""

    def why_not(self, case: Case) -> str:
        return super().why_not(case) or self.why_not_slots(getattr(self, self.size), case)

    def room(self, case: Case) -> int:
        """Bytes of the GPU for slots."""
        return gpu_left(case)

    def most(self, case: Case) -> int:
        """The most slots per layer that fit."""
        return min(max(self.room(case), 0) // case.slot_bytes, case.n_experts)

    def sizes(self, case: Case) -> Sequence[int]:
        return self.accepted(ladder(1, self.most(case)), case)

    def own_size(self, case: Case) -> int:
        if most := self.most(case):
            return most
        raise no_room("slots on the GPU", self.room(case))

    def plan(self, case: Case) -> Plan:
        bank = Bank(slots=min(self.chosen, case.n_experts) or 1)
        return Plan(Setup(bank, self.policy(case), "atomic"), self.execution(case), self.machine_of(case))

    def held_bytes(self, case: Case) -> int:
        """Bytes of the slots."""
        return self.chosen * case.slot_bytes

    def memory(self, case: Case) -> tuple[Share, ...]:
        return (Share(self.held, "gpu", self.held_bytes(case)), *gpu_weights(case), *self.beside(case))

    def beside(self, case: Case) -> tuple[Share, ...]:
        """What it keeps beside its slots and weights: all experts in the mapped file."""
        return (Share(self.others, "mapped", case.model.routed_bytes),)

    @classmethod
    def ran(cls, run: PublishedRun) -> Self:
        return cls().of_size(run.slots)
