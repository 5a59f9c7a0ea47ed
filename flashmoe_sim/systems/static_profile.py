"""The most used experts of a profile, permanently on the GPU, beside the CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

import numpy as np

from flashmoe_sim.parameters import INT32, Limits
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.static import Static
from flashmoe_sim.residency.pool import Pool
from flashmoe_sim.residency.profile import find_profile
from flashmoe_sim.residency.replay import Replayed
from flashmoe_sim.residency.replay import replay as run_replay
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.systems.base import (
    HALF,
    Case,
    Launch,
    Plan,
    Share,
    gpu_weights,
    llama_words,
)
from flashmoe_sim.systems.gpu_slots import GpuSlots
from flashmoe_sim.systems.published import RanAs
from flashmoe_sim.timeline.models.hot_cold import HotCold
from flashmoe_sim.trace.routing import RoutingTrace
from flashmoe_sim.trace.store import write_store

ALL = "all"
MOST_IN_LINE = 256  # experts


@dataclass(frozen=True, kw_only=True)
class StaticProfile(GpuSlots):
    """The GPU holds the most used experts of each layer in a profile, and the CPU computes misses in parallel.

    Here the same two lanes compute prompts; the engine copies the CPU's experts to the GPU for a large batch, so its
    prompts are faster.

    slots: experts per layer on the GPU; left out: as many as it has room for. The engine needs a number.
    profile: where uses are counted: `half` (the first half of the trace; the second is timed), `all` (the whole trace,
        in hindsight), `first-N` (its first N steps), or the file of another trace.
    """

    name: ClassVar[str] = "static-profile"
    title: ClassVar[str] = "thecodacus' llama.cpp, hot experts of a profile"
    engine: ClassVar[str] = "thecodacus/llama.cpp"
    program: ClassVar[str] = "static-profile"
    source: ClassVar[str] = "thecodacus/llama.cpp ac743f81f: common/arg.cpp:2625, src/llama-model.cpp:1661; #5, #9"
    keeps: ClassVar[str] = "a profile's most used experts of each layer in GPU memory"
    misses: ClassVar[str] = "computed on the CPU"
    limits: ClassVar[Limits] = {"slots": (1, INT32)}
    by_faults: ClassVar[bool] = True

    slots: int | None = None
    profile: str = HALF

    def plan(self, case: Case) -> Plan:
        setup = Setup(Bank(slots=min(self.chosen, case.n_experts)), Static(), "atomic")
        return Plan(setup, HotCold(), self.adapted(case.machine))

    def replay(self, workload: Workload, setup: Setup) -> Replayed:
        profile = profile_of(workload.trace, self.profile)
        return run_replay(workload, replace(setup, policy=Static(profile=profile)), record=True)

    def files(self, workload: Workload) -> Mapping[str, bytes]:
        profile = "" if self.learns_first_half else profile_of(workload.trace, self.profile)
        pools = find_profile(profile, workload.trace, workload.layer_pools).pools
        return {"PROFILE.csv": profile_csv(pools)}

    def with_profile_of(self, trace: RoutingTrace, folder: Path) -> Self | None:
        file = written_profile(trace, self.profile, folder)
        return None if file is None else replace(self, profile=file)

    def memory(self, case: Case) -> tuple[Share, ...]:
        return (
            Share("hot experts", "gpu", self.chosen * case.slot_bytes),
            *gpu_weights(case),
            Share("experts of the CPU", "mapped", case.model.routed_bytes),
        )

    def launch(self, case: Case) -> Launch:
        words = ("-ngl", "99", "-ncmoe", "99", *self.serving_words(case), "--moe-cache-profile", "PROFILE.csv")
        return Launch(llama_words(case, *words, "--moe-cache-slots", str(self.slots)))

    ran_as: ClassVar[RanAs] = {"thecodacus/llama.cpp moe-cache": ("vram_static_profile",)}


def profile_csv(pools: Sequence[Pool]) -> bytes:
    """The experts that each call requests, in lines of step, layer and experts, in the format of llama-moe-trace.

    The engine counts every expert in a line, so its counts are requests, as for `static`.
    Source: thecodacus/llama.cpp ac743f81f, src/llama-model.cpp:1675; it reads lines in pieces of 4095 bytes.
    """
    lines = []
    for pool in pools:
        for call, start, stop in zip(pool.call, pool.offset[:-1], pool.offset[1:], strict=True):
            experts = np.unique(pool.key[start:stop])
            ahead = f"{pool.trace.steps[call]},{pool.trace.layer[call]}"
            for first in range(0, len(experts), MOST_IN_LINE):
                lines.append(",".join((ahead, *map(str, experts[first : first + MOST_IN_LINE].tolist()))))
    return ("\n".join(lines) + "\n").encode()


def profile_of(trace: RoutingTrace, profile: str) -> str:
    """A system's profile in the words of the policy `static`."""
    if profile == HALF:
        return f"first-{max(len(np.unique(trace.steps)) // 2, 1)}"
    return "" if profile == ALL else profile


def written_profile(trace: RoutingTrace, profile: str, folder: Path) -> str | None:
    """A file with the trace, to use as the profile; None for a profile that does not come from a given trace."""
    if profile not in (HALF, ALL):
        return None
    file = folder / "profile.parquet"
    write_store(trace, file)
    return str(file)
