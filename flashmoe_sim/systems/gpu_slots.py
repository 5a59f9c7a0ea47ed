"""What systems with a cache of experts on the GPU have in common, and those with slots of every layer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.base import Policy
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.systems.base import Case, Plan, Share, System, gpu_left, gpu_weights, ladder, no_room
from flashmoe_sim.systems.published import PublishedRun
from flashmoe_sim.timeline.models.base import ExecutionModel


@dataclass(frozen=True, kw_only=True)
class GpuCache(System):
    """Experts are cached on a GPU with its own memory, and all are in RAM or in files.

    held, others: what its memory calls the experts in the cache, and all of them, which may be in the mapped file or,
        as `others_in` says, in RAM; empty if neither holds them.
    copies: as for `gpu_weights`. shared: whether all layers share the cache. contract, direct_io: of its replay and its
        reads.
    """

    own_gpu: ClassVar[bool | None] = True
    held: ClassVar[str] = "slots"
    others: ClassVar[str] = "experts"
    others_in: ClassVar[str] = "mapped"
    copies: ClassVar[bool] = True
    contract: ClassVar[str] = "atomic"
    shared: ClassVar[bool] = False
    direct_io: ClassVar[bool] = False

    @abstractmethod
    def policy(self, case: Case) -> Policy:
        """Which experts are in the cache."""

    @abstractmethod
    def execution(self, case: Case) -> ExecutionModel:
        """The order of events of a call."""

    @abstractmethod
    def held_bytes(self, case: Case) -> int:
        """Bytes of the cache."""

    def bank(self, case: Case) -> Bank:
        return Bank(budget_bytes=self.held_bytes(case))

    def plan(self, case: Case) -> Plan:
        scope: Literal["layer", "global"] = "global" if self.shared else "layer"
        setup = Setup(self.bank(case), self.policy(case), self.contract, scope=scope)
        return Plan(setup, self.execution(case), self.machine_of(case), self.direct_io)

    def memory(self, case: Case) -> tuple[Share, ...]:
        weights = gpu_weights(case, copies=self.copies)
        return (Share(self.held, "gpu", self.held_bytes(case)), *weights, *self.beside(case))

    def beside(self, case: Case) -> tuple[Share, ...]:
        """What it keeps beside its cache and weights."""
        return (Share(self.others, self.others_in, case.model.routed_bytes),) if self.others else ()


@dataclass(frozen=True, kw_only=True)
class GpuSlots(GpuCache):
    """Every layer has equally many slots; `size` is their number, None for all."""

    size: ClassVar[str] = "slots"

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

    def bank(self, case: Case) -> Bank:
        return Bank(slots=min(self.chosen, case.n_experts) or 1)

    def held_bytes(self, case: Case) -> int:
        return self.chosen * case.slot_bytes

    @classmethod
    def ran(cls, run: PublishedRun) -> Self:
        return cls().of_size(run.slots)
