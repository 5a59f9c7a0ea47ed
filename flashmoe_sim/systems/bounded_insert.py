"""A cache on the GPU that installs only a few experts at a time, beside the CPU."""

from __future__ import annotations

from dataclasses import dataclass

from flashmoe_sim.policies.bounded_lru import BoundedLru
from flashmoe_sim.systems.base import Case, Launch, llama_words
from flashmoe_sim.systems.execution import HitsThenMisses
from flashmoe_sim.systems.gpu_slots import GpuSlots


@dataclass(frozen=True, kw_only=True)
class BoundedInsert(GpuSlots, program="bounded-insert"):
    """Every layer has slots on the GPU for the last used experts, and installs a few per token; the CPU computes
    misses.

    Only calls of one token use the slots; prompts take llama.cpp's ordinary path. The CPU computes misses after the
    GPU's hits, since the scheduler runs one after the other. The engine uploads between two tokens; here the call
    waits.

    slots: per layer; left out: as many as the GPU has room for. The engine has no cache unless slots are given.
    inserts: the most experts that a layer installs per token. The engine's default is 2; its users measured 1 as
        faster.
    """

    slots: int | None = None
    inserts: int = 1

    def policy(self, case: Case) -> BoundedLru:
        return BoundedLru(cap=self.inserts)

    def execution(self, case: Case) -> HitsThenMisses:
        return HitsThenMisses()

    def launch(self, case: Case) -> Launch:
        words = ("-ngl", "99", "--cpu-moe", *self.serving_words(case), "--moe-expert-cache", str(self.slots))
        return Launch(llama_words(case, *words, "--moe-expert-cache-inserts", str(self.inserts)))
