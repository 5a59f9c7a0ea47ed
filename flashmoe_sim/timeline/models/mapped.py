"""A model that is mapped into memory and computed where it lies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from flashmoe_sim._jit import inlined
from flashmoe_sim.io.errors import Conflict, Unsupported
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.timeline.ahead import only_read
from flashmoe_sim.timeline.calls import compute
from flashmoe_sim.timeline.models.base import Call, ExecutionModel
from flashmoe_sim.timeline.names import READ
from flashmoe_sim.timeline.storage import Batch, read_batch


@inlined
def serve(sim: Any, call: Call, parts: Any) -> float:
    chunks = sim.rows[call.row].chunks
    read = read_batch(sim, call, Batch(0, call.misses, call.warm, call.fills, chunks), call.ready)
    parts[READ] += read - call.ready
    end: float = compute(sim, call, parts, read, call.requests)
    return end


@dataclass(frozen=True)
class Mapped(ExecutionModel):
    """No bank: experts are computed in place in RAM. The experts of a call that RAM lacks are read first, together.

    Nothing is copied, and no call stops for a host.
    """

    name: ClassVar[str] = "mapped"
    describes: ClassVar[str] = "llama.cpp with the whole model mapped into memory"
    has_bank: ClassVar[bool] = False
    in_place: ClassVar[bool] = True
    host_calls: ClassVar[Literal["all", "missing", "none"]] = "none"
    serve: ClassVar[Any] = serve
    after: ClassVar[Any] = only_read

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
