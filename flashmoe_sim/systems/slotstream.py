"""slotstream: one pool of slots for all layers on Apple silicon, for one model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Self

from flashmoe_sim.io.errors import Unsupported
from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.clock_hand import ClockHand
from flashmoe_sim.residency.workload import Setup
from flashmoe_sim.systems.base import Case, Launch, Plan, Share, System, gpu_left, gpu_weights, ladder, no_room
from flashmoe_sim.systems.published import PublishedRun
from flashmoe_sim.timeline.models.parallel_install import ParallelInstall

GB = 10**9
LEAST = 14  # of each layer: 640 slots in all
# The engine's own plan of its memory.
MOST_BYTES, RAM_SHARE, METAL_MARGIN_BYTES = 33 * GB, 0.7, 2 * GB
FIXED_BYTES = 6_300_000_000  # weights, context and runtime, and its margin
PASSES, PASS_TOKEN_BYTES, PASS_SHARE = (256, 512, 1024, 2048, 4096), 1_300_000, 1 / 4
REUSE_SHARE, MOST_REUSE_BYTES = 1 / 10, 900_000_000


@dataclass(frozen=True, kw_only=True)
class Slotstream(System, program="slotstream"):
    """The experts of all layers share one pool of slots, out of which a clock's hand evicts; misses are read together,
    then all experts are computed.

    The engine reads a long prompt beside its pool. Here it goes through the pool like any call, and the speed of
    prompts is not predicted. Its draft head, and the reads ahead that come with it, are left off.

    experts_per_layer: slots, divided by the number of layers; left out: as many as the engine's own plan of its memory
        has.
    """

    experts_per_layer: int | None = None

    def why_not(self, case: Case) -> str:
        if self.experts_per_layer is not None and self.experts_per_layer < LEAST:
            return f"experts_per_layer={self.experts_per_layer}; the engine takes {LEAST} or more"
        return super().why_not(case)

    def _fit(self, case: Case, room_bytes: float) -> int:
        fit = min(int(room_bytes) // case.slot_bytes, case.n_experts)
        if fit < LEAST:
            raise no_room(f"{LEAST} experts of each layer", int(room_bytes))
        return fit

    def sizes(self, case: Case) -> Sequence[int]:
        return self.accepted(ladder(LEAST, self._fit(case, gpu_left(case))), case)

    def own_size(self, case: Case) -> int:
        memory = case.machine.memory
        ram_bytes = inf if memory is None else memory.ram_gib.value * GIB
        own = self._fit(case, own_pool_bytes(ram_bytes=ram_bytes, metal_bytes=case.gpu_bytes))
        return min(own, self._fit(case, gpu_left(case)))

    def plan(self, case: Case) -> Plan:
        bank = Bank(slots=min(self.chosen, case.n_experts))
        setup = Setup(bank, ClockHand(), "protected", scope="global")
        return Plan(setup, ParallelInstall(), self.adapted(case.machine))

    def memory(self, case: Case) -> tuple[Share, ...]:
        pool_bytes = min(self.chosen, case.n_experts) * case.slot_bytes
        return (
            Share("slots", "gpu", pool_bytes),
            *gpu_weights(case, copies=False),
            Share("experts", "mapped", case.model.routed_bytes),
        )

    def launch(self, case: Case) -> Launch:
        words = ["slotstream", "serve", "--experts-per-layer", str(self.experts_per_layer), "--mtp", "off"]
        if case.context:
            words += ["--max-context", str(case.context)]
        return Launch(tuple(words))

    @classmethod
    def ran(cls, run: PublishedRun) -> Self:
        if re.search(r"drafts\b|MTP on", run.flags):
            raise Unsupported(f"{run.where}: drafts of slotstream are not modelled")
        return cls(experts_per_layer=run.slots_per_layer)


def own_pool_bytes(*, ram_bytes: float, metal_bytes: float) -> float:
    """The pool of the engine's own plan: what its target leaves beside weights, a pass of prompts and kept prefixes."""
    target = min(MOST_BYTES, RAM_SHARE * ram_bytes, metal_bytes - METAL_MARGIN_BYTES)
    room = target - FIXED_BYTES
    passes = [PASS_TOKEN_BYTES * tokens for tokens in PASSES]
    prompts = max((taken for taken in passes if taken <= PASS_SHARE * room), default=passes[0])
    return room - prompts - min(REUSE_SHARE * room, MOST_REUSE_BYTES)
