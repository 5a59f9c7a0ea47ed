"""No stable bank: everything is copied into fresh tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.timeline.models.base import ExecutionModel
from flashmoe_sim.timeline.names import Uploads


@dataclass(frozen=True)
class KMaterialize(ExecutionModel):
    """As `sync-install`, but every expert of every call, hit or miss, is copied into fresh tensors."""

    name: ClassVar[str] = "k-materialize"
    describes: ClassVar[str] = "a diagnostic mode of the patched llama.cpp runtime, without a bank"
    one_by_one: ClassVar[bool] = True
    uploads: ClassVar[Uploads] = "everything"

    def copies(self, machine: Machine) -> bool:
        return True
