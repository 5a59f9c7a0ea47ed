"""A hot set on the GPU, chosen by a profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, Self

from flashmoe_sim.io.sizes import MIB
from flashmoe_sim.io.whole import temporary_folder
from flashmoe_sim.parameters import Choices
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.hot_profile import HotProfile
from flashmoe_sim.residency.replay import Replayed
from flashmoe_sim.residency.workload import Setup, Workload
from flashmoe_sim.systems.base import HALF, Case, Launch, gpu_left, halved, llama_words, no_room
from flashmoe_sim.systems.gpu_slots import GpuCache
from flashmoe_sim.systems.hot_cache_flags import BUDGET, PROFILE
from flashmoe_sim.systems.published import PublishedRun
from flashmoe_sim.systems.workloads import ALL, half_of
from flashmoe_sim.timeline.models.base import NEVER
from flashmoe_sim.timeline.models.hot_cold import HotColdPadded
from flashmoe_sim.trace.cut import cut
from flashmoe_sim.trace.perf_profile import perf_profile
from flashmoe_sim.trace.routing import RoutingTrace

RESERVE_BYTES = 1024 * MIB
REVISIONS = {"head": "random", "may": "none"}  # what fills the room that the profile leaves
LEARN = ("--auto-learn", "--moe-hot-cache-warmup-prompt", "PROMPT")


@dataclass(frozen=True, kw_only=True)
class HotCache(GpuCache, program="hot-cache"):
    """The experts with the best scores in a profile are also on the GPU; the CPU computes misses in parallel.

    Prompts of 256 tokens and more have their misses copied to the GPU.
    Without CUDA, the GPU computes hits before the CPU computes misses, not at the same time.
    max_mib: size of the cache; left out: the GPU memory left beside weights and context, less 1024 MiB. That is the
        program's automatic rule; its default, 0, is off.
    weighting: how experts are scored: flat, balanced, pressure, smooth or time.
    layer_curve: the strength of the layers' weights, 0 to 1; not used by flat and balanced.
    update_rate: share of the hot set that may be exchanged after each request; 0: none.
    profile: what is scored: `half` (the first half of the trace; the second is timed), `all` (the whole trace, in
        hindsight), or a profile in JSON. The program or `sim trace profile` writes such a profile.
    revision: `head` (04c100386 of June 2026) or `may`, which leaves room that the profile does not fill empty.
    """

    words: ClassVar[Choices] = {"revision": REVISIONS}

    max_mib: int | None = None
    weighting: str = "flat"
    layer_curve: float = 0.5
    update_rate: float = 0.0
    profile: str = HALF
    revision: str = "head"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._policy()

    @property
    def _file(self) -> str:
        return "" if self.profile in (HALF, ALL) else self.profile

    def _policy(self) -> HotProfile:
        return HotProfile(self._file, self.weighting, self.layer_curve, self.update_rate, REVISIONS[self.revision])

    def why_not(self, case: Case) -> str:
        least = 2 * min(layer.expert_bytes for layer in case.model.layers.values())
        if self.max_mib is not None and self.max_mib * MIB < least:
            return f"{self.max_mib} MiB; an expert and the empty slot beside it take {least / MIB:.1f}"
        return super().why_not(case)

    def sizes(self, case: Case) -> Sequence[int]:
        return halved(self._most(case))

    def sized(self, case: Case) -> Self:
        return self.taken(super().sized(case), case)

    def own_size(self, case: Case) -> int:
        if most := self._most(case):
            return most
        raise no_room("hot experts on the GPU", gpu_left(case))

    def _most(self, case: Case) -> int:
        own_rule = case.budget.gpu_left_bytes + case.compute_bytes() - RESERVE_BYTES
        return max(min(own_rule, gpu_left(case)) if case.leaves_spare else own_rule, 0) // MIB

    def policy(self, case: Case) -> HotProfile:
        return self._policy()

    def execution(self, case: Case) -> HotColdPadded:
        side_by_side_from = HotColdPadded.min_parallel if case.machine.api == "cuda" else NEVER
        return HotColdPadded(min_parallel=side_by_side_from, pinned=self.loads_whole(case))

    def bank(self, case: Case) -> Bank:
        return Bank(budget_bytes=self.chosen * MIB)

    def replay(self, workload: Workload, setup: Setup) -> Replayed:
        if self.profile != HALF or not isinstance(setup.policy, HotProfile):
            return super().replay(workload, setup)
        with temporary_folder() as folder:
            file = folder / "profile.json"
            file.write_bytes(_profile_of_half(workload))
            policy = replace(setup.policy, profile=str(file))
            return super().replay(workload, replace(setup, policy=policy))

    def files(self, workload: Workload) -> Mapping[str, bytes]:
        return {} if self._file else {"PROFILE.json": perf_profile(workload.trace)}

    def with_profile_of(self, trace: RoutingTrace, folder: Path) -> Self | None:
        if self._file:
            return None
        file = folder / "profile.json"
        file.write_bytes(perf_profile(trace))
        return replace(self, profile=str(file))

    def held_bytes(self, case: Case) -> int:
        return min(self.chosen * MIB, case.model.routed_bytes + case.slot_bytes)  # with every layer's empty slot

    def launch(self, case: Case) -> Launch:
        words = ["-ngl", "99", "--cpu-moe", *self.serving_words(case), PROFILE, self._file or "PROFILE.json"]
        words += [BUDGET, str(self.max_mib), "--moe-hot-cache-weighting", self.weighting]
        words += ["--moe-hot-cache-layer-curve", f"{self.layer_curve:g}"]
        words += ["--moe-hot-cache-update-rate", f"{self.update_rate:g}"] if self.update_rate else []
        return Launch(llama_words(case, *words), first_start=() if self._file else LEARN)

    @classmethod
    def ran(cls, run: PublishedRun) -> Self:
        return cls(max_mib=run.number_after(f"{BUDGET} "))


@lru_cache(maxsize=2)
def _profile_of_half(workload: Workload) -> bytes:
    """The profile of the first half of a trace, which many settings are replayed with."""
    trace = workload.trace
    return perf_profile(cut(trace, steps=(None, half_of(trace))))
