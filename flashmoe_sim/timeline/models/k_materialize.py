"""No stable bank: everything is copied into fresh tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from flashmoe_sim._jit import inlined
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.timeline.ahead import only_read
from flashmoe_sim.timeline.calls import compute_all, read_one_by_one, upload
from flashmoe_sim.timeline.models.base import Call, ExecutionModel


@inlined
def serve(sim: Any, call: Call, parts: Any) -> float:
    read = read_one_by_one(sim, call, parts, call.ready, 0.0)
    copied = upload(sim, call, parts, read, call.requests, sim.rows[call.row].upload_s)
    end: float = compute_all(sim, call, parts, copied)
    return end


@dataclass(frozen=True)
class KMaterialize(ExecutionModel):
    """As `sync-install`, but every expert of every call, hit or miss, is copied into fresh tensors."""

    name: ClassVar[str] = "k-materialize"
    describes: ClassVar[str] = "a diagnostic mode of the patched llama.cpp runtime, without a bank"
    serve: ClassVar[Any] = serve
    after: ClassVar[Any] = only_read

    def copies(self, machine: Machine) -> bool:
        return True
