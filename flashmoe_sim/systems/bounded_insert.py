"""A cache on the GPU that installs only a few experts at a time, beside the CPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from flashmoe_sim.parameters import INT32, Limits
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.bounded_lru import BoundedLru
from flashmoe_sim.residency.replay import Replayed
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.systems.base import (
    Case,
    Launch,
    Plan,
    Share,
    gpu_weights,
    llama_words,
)
from flashmoe_sim.systems.execution import HitsThenMisses
from flashmoe_sim.systems.gpu_slots import GpuSlots
from flashmoe_sim.systems.parts import replay_in_parts
from flashmoe_sim.systems.published import RanAs


@dataclass(frozen=True, kw_only=True)
class BoundedInsert(GpuSlots):
    """Every layer has slots on the GPU for the last used experts, and installs a few per token; the CPU computes
    misses.

    Only calls of one token use the slots; prompts take llama.cpp's ordinary path. The CPU computes misses after the
    GPU's hits, since the scheduler runs one after the other. The engine uploads between two tokens; here the call
    waits.

    slots: per layer; left out: as many as the GPU has room for. The engine has no cache unless slots are given.
    inserts: the most experts that a layer installs per token. The engine's default is 2; its users measured 1 as
        faster.
    """

    name: ClassVar[str] = "bounded-insert"
    title: ClassVar[str] = "llama.cpp with pull request 27861, bounded inserts"
    engine: ClassVar[str] = "llama.cpp, pull request 27861"
    program: ClassVar[str] = "bounded-insert"
    source: ClassVar[str] = "ggml-org/llama.cpp#27861: --moe-expert-cache, --moe-expert-cache-inserts"
    keeps: ClassVar[str] = "the experts used last, in slots of each layer on the GPU"
    misses: ClassVar[str] = "computed on the CPU; a few a token are uploaded"
    limits: ClassVar[Limits] = {"slots": (1, INT32), "inserts": (1, INT32)}
    by_faults: ClassVar[bool] = True

    slots: int | None = None
    inserts: int = 1

    def plan(self, case: Case) -> Plan:
        setup = Setup(Bank(slots=min(self.chosen, case.n_experts)), BoundedLru(cap=self.inserts), "atomic")
        return Plan(setup, HitsThenMisses(), self.adapted(case.machine))

    def replay(self, workload: Workload, setup: Setup) -> Replayed:
        """Replay without lookups for calls of several tokens."""
        return replay_in_parts(workload, setup, [np.flatnonzero(workload.trace.n_tokens <= 1)])

    def memory(self, case: Case) -> tuple[Share, ...]:
        return (
            Share("slots", "gpu", self.chosen * case.slot_bytes),
            *gpu_weights(case),
            Share("experts of the CPU", "mapped", case.model.routed_bytes),
        )

    def launch(self, case: Case) -> Launch:
        words = ("-ngl", "99", "--cpu-moe", *self.serving_words(case), "--moe-expert-cache", str(self.slots))
        return Launch(llama_words(case, *words, "--moe-expert-cache-inserts", str(self.inserts)))

    ran_as: ClassVar[RanAs] = {"llama.cpp PR #27861": ("vram_lru",)}
