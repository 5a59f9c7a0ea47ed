"""The whole model on the GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flashmoe_sim.io.errors import TooLarge
from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.systems.base import Case, Launch, Plan, Share, System, gpu_weights, llama_words
from flashmoe_sim.systems.split import (
    cuts,
    default_shares,
    held_by,
    loads,
    of_other_gpus,
    overflow,
    roomiest,
    rooms,
    served,
    written,
)
from flashmoe_sim.timeline.models.resident import Resident


@dataclass(frozen=True, kw_only=True)
class AllGpu(System, program="llama-cpp", name="all-gpu"):
    """All weights are in GPU memory; nothing is missed. Of unlike GPUs, slow ones get as few layers as they can."""

    def plan(self, case: Case) -> Plan:
        setup = Setup(Bank(slots=case.n_experts), Lru(), "atomic")
        return Plan(setup, Resident(), self.machine_of(case))

    def machine_of(self, case: Case) -> Machine:
        return self.adapted(served(case, self.shares(case), {}) if case.machine.cards else case.machine)

    def shares(self, case: Case) -> Sequence[float]:
        """The share of each GPU: equal or, if they leave too little room, ones that leave more."""
        if case.machine.gpus == 1:
            return default_shares(case.machine)
        sizes, taken = loads(case, {}, copies=False)
        tried = cuts(case, sizes, taken)
        return roomiest(case, tried, lambda cut: held_by(cut, sizes, taken)) or tried[0]

    def check(self, case: Case) -> None:
        super().check(case)
        if found := overflow(case, self.each_gpu(case), -case.gpu_error_bytes):
            gpu, size = found
            over = size - rooms(case)[gpu]
            raise TooLarge(
                f"takes {size / GIB:.1f} GiB of GPU {gpu}, {over / GIB:.1f} more than it has, however layers are cut"
            )

    def each_gpu(self, case: Case) -> list[int]:
        if case.machine.gpus == 1:
            return []
        return held_by(self.shares(case), *loads(case, {}, copies=False))

    def memory(self, case: Case) -> tuple[Share, ...]:
        weights = gpu_weights(case, copies=False)
        of_others = of_other_gpus(case, case.compute_bytes(copies=False))
        return (Share("experts", "gpu", case.model.routed_bytes), *weights, *of_others)

    def launch(self, case: Case) -> Launch:
        shares = self.shares(case)
        cut = ("-ts", written(shares, ",")) if len(set(shares)) > 1 else ()
        others = ("--rpc", "RPC_HOSTS") if case.machine.machines > 1 else ()
        return Launch(llama_words(case, "-ngl", "99", *others, *cut, *self.serving_words(case)))
