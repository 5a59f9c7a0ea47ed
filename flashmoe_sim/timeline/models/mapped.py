"""A model that is mapped into memory and computed where it lies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from flashmoe_sim.io.errors import Conflict, Unsupported
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.timeline.models.base import ExecutionModel
from flashmoe_sim.timeline.names import Uploads


@dataclass(frozen=True)
class Mapped(ExecutionModel):
    """No bank: experts are computed in place in RAM. The experts of a call that RAM lacks are read first, together.

    Nothing is copied, and no call stops for a host.
    """

    name: ClassVar[str] = "mapped"
    describes: ClassVar[str] = "llama.cpp with the whole model mapped into memory"
    uploads: ClassVar[Uploads] = "nothing"
    has_bank: ClassVar[bool] = False
    in_place: ClassVar[bool] = True
    host_calls: ClassVar[Literal["all", "missing", "none"]] = "none"

    def check(self, machine: Machine, *, direct_io: bool) -> None:
        if machine.cpu is None or machine.cpu.weights_gb_s is None or machine.memory is None:
            raise Unsupported(
                f"machine {machine.name}: {self.name} computes in RAM, and needs [memory], and [cpu] with "
                "weights_gb_s; choose another --execution or another machine"
            )
        if direct_io:
            raise Conflict(
                f"--direct-io: {self.name} uses experts where they lie in RAM, which is the page cache; "
                "leave it out, or choose another --execution"
            )
