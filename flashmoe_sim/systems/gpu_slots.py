"""What systems with slots of every layer on the GPU have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from flashmoe_sim.systems.base import Case, System, gpu_left, ladder, no_room
from flashmoe_sim.systems.published import PublishedRun


@dataclass(frozen=True, kw_only=True)
class GpuSlots(System):
    """Every layer has equally many slots on a GPU with its own memory; `size` is their number, None for all."""

    size: ClassVar[str] = "slots"
    own_gpu: ClassVar[bool | None] = True

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

    def sized(self, case: Case) -> Self:
        if self.size_given:
            return self
        if not (most := self.most(case)):
            raise no_room("slots on the GPU", self.room(case))
        return self.of_size(most)

    @classmethod
    def ran(cls, run: PublishedRun) -> Self:
        return cls().of_size(run.slots)
