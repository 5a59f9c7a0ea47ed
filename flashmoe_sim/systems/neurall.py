"""neurall's llama.cpp: slots of each layer on the GPU, swapped by a score within a share of a token's time."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from flashmoe_sim.geometry.compute_buffers import OFFLOAD_TOKENS
from flashmoe_sim.io.errors import OutOfRange, Unsupported
from flashmoe_sim.io.sizes import MIB
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.policies.base import Policy
from flashmoe_sim.policies.scored_swaps import ScoredSwaps
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.systems.base import HALF, Case, Launch, Share, llama_words
from flashmoe_sim.systems.gpu_slots import GpuSlots
from flashmoe_sim.systems.published import PublishedRun
from flashmoe_sim.systems.split import besides, of_other_gpus
from flashmoe_sim.systems.workloads import learning
from flashmoe_sim.timeline.assemble import Conditions, price, weigh
from flashmoe_sim.timeline.from_rates import made_work
from flashmoe_sim.timeline.models.hot_cold import HotCold
from flashmoe_sim.timeline.run import total_seconds

NONE = "none"
RESERVE_BYTES = 384 * MIB  # of each GPU
UPLOAD_SHARE = 0.25  # of a token's time
STEPS = 8  # of the token's time by which swaps are sized


@dataclass(frozen=True, kw_only=True)
class Neurall(GpuSlots, program="neurall"):
    """Every layer has slots on the GPU, whose experts are swapped by use as fast as the link allows; the CPU computes
    misses in parallel.

    The engine limits the uploads of a step to a quarter of the token's time, which it measures. A replay counts no
    seconds, so the limit is a number of swaps here: a quarter of the token's time, predicted as if whole layers were
    on the GPU, over the time to upload an expert from pinned RAM. The engine's self-tuner, its uploads for the same
    token and its predictors are left out. Prompts of 32 tokens and more have their misses copied to the GPU.

    slots: per layer; left out: as many as fit beside 384 MiB of each GPU, the engine's automatic rule. One more stays
        empty.
    swaps: the most experts swapped per step, in all layers together; left out: as many as the limit allows.
    lead: how much higher than the displaced expert's its score must be, in uses; -2: from the speeds of CPU and link,
        the default of earlier versions.
    admit: uses in the last 64 tokens without which an expert displaces none; 0 in earlier versions.
    profile: what the slots hold at the start: `half` (the most used of the first half of the trace, as the engine
        learns from earlier runs) or `none`.
    """

    slots: int | None = None
    swaps: int | None = None
    lead: int = 0
    admit: int = 2
    profile: str = HALF

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lead == -1:
            raise OutOfRange("system neurall: lead=-1; expected 0 or more, or -2")

    def room(self, case: Case) -> int:
        gpus = case.machine.gpus
        return super().room(case) - gpus * RESERVE_BYTES - (gpus - 1) * besides(case) - case.slot_bytes

    def most(self, case: Case) -> int:
        return min(super().most(case), case.n_experts - 1)

    def policy(self, case: Case) -> ScoredSwaps:
        return ScoredSwaps(swaps=self._swaps(case, self.machine_of(case)), lead=self._lead(case), admit=self.admit)

    def execution(self, case: Case) -> HotCold:
        return HotCold(copy_from_tokens=OFFLOAD_TOKENS)

    def _lead(self, case: Case) -> int:
        """What an upload costs in experts that the CPU computes meanwhile, rounded up, if that is the lead."""
        cpu, link = case.machine.cpu, case.machine.link
        if self.lead >= 0 or cpu is None or cpu.weights_gb_s is None or link is None:
            return max(self.lead, 0)
        return int(np.ceil(cpu.weights_gb_s.value / link.pinned_gb_s.value))

    def _swaps(self, case: Case, machine: Machine) -> int:
        """Swaps per step: given, else a share of a token's time over the time of an upload."""
        model, link = case.model, machine.link
        if self.swaps is not None or link is None:
            return self.swaps or 0
        layers = tuple(model.layers.values())
        execution = HotCold()
        conditions = Conditions(
            execution, model.dense_bytes, case.kv_bytes, checked=True, depth=case.depth, kv_type=case.kv_type
        )
        top_k = model.top_k or 1
        missed = top_k * (1 - min(self.chosen / case.n_experts, 1))
        work = made_work(layers=len(layers), top_k=top_k, misses_per_call=missed, page_cache_share=1.0, steps=STEPS)
        costs = price(weigh(model, layers, conditions), machine, conditions, io_split=1)
        token_s = total_seconds(work, costs, execution) / STEPS
        expert_bytes = case.slot_bytes / len(layers)
        return int(UPLOAD_SHARE * token_s * link.pinned_gb_s.value * 1e9 / expert_bytes)

    def taught(self, policy: Policy, workload: Workload) -> Policy:
        return learning(policy, workload) if self.learns_first_half else policy

    def held_bytes(self, case: Case) -> int:
        return (self.chosen + 1) * case.slot_bytes

    def beside(self, case: Case) -> tuple[Share, ...]:
        return (*of_other_gpus(case, besides(case)), *super().beside(case))

    def launch(self, case: Case) -> Launch:
        words = ["-ngl", "99", "--cpu-moe", "-nr", *self.serving_words(case, maps=False)]
        words += ["--moe-expert-cache", str(self.slots)]
        given = {"swaps-per-step": (self.swaps, None), "swap-lead": (self.lead, 0), "admit": (self.admit, 2)}
        settings = [f"{name}={value}" for name, (value, default) in given.items() if value != default]
        words += ["--moe", ",".join(settings)] if settings else []
        state = {} if self.learns_first_half else {"LLAMA_MOE_STATE": "0"}
        return Launch(llama_words(case, *words), state)

    @classmethod
    def ran(cls, run: PublishedRun) -> Self:
        """With what its build did by default, and empty at the start unless it kept what it had learnt."""
        flags, early = run.flags, run.build.startswith("b112")
        if re.search(r"policy: (?:S?LRU|aging)|router|learned(?! state)", flags):
            raise Unsupported(f"{run.where}: no setting of neurall is that eviction rule or predictor")
        if early and "WAIT" not in flags and "DETERMINISTIC" not in flags:
            raise Unsupported(f"{run.where}: this build did not wait for swaps, as neurall does")
        asked = cls(slots=run.slots_per_layer, profile=HALF if "state kept" in flags else "none")
        if early or "policy: " in flags:
            asked = replace(asked, lead=0 if "margin 0" in flags else -2, admit=2 if "admit on 2" in flags else 0)
        return replace(asked, swaps=8, lead=4) if "DETERMINISTIC" in flags else asked
