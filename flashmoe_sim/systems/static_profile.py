"""The most used experts of a profile, permanently on the GPU, beside the CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from flashmoe_sim.policies.base import Policy
from flashmoe_sim.policies.static import Static
from flashmoe_sim.residency.pool import Pool
from flashmoe_sim.residency.profile import find_profile
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.systems.base import HALF, Case, Launch, llama_words
from flashmoe_sim.systems.gpu_slots import GpuSlots
from flashmoe_sim.systems.workloads import profile_of, with_profile
from flashmoe_sim.timeline.models.hot_cold import HotCold
from flashmoe_sim.trace.routing import RoutingTrace

MOST_IN_LINE = 256  # experts


@dataclass(frozen=True, kw_only=True)
class StaticProfile(GpuSlots, program="static-profile"):
    """The GPU holds the most used experts of each layer in a profile, and the CPU computes misses in parallel.

    Here the same two lanes compute prompts; the engine copies the CPU's experts to the GPU for a large batch, so its
    prompts are faster.

    slots: experts per layer on the GPU; left out: as many as it has room for. The engine needs a number.
    profile: where uses are counted: `half` (the first half of the trace; the second is timed), `all` (the whole trace,
        in hindsight), `first-N` (its first N steps), or the file of another trace.
    """

    slots: int | None = None
    profile: str = HALF

    def policy(self, case: Case) -> Static:
        return Static()

    def execution(self, case: Case) -> HotCold:
        return HotCold()

    def taught(self, policy: Policy, workload: Workload) -> Static:
        return Static(profile=profile_of(workload.trace, self.profile))

    def files(self, workload: Workload) -> Mapping[str, bytes]:
        profile = "" if self.learns_first_half else profile_of(workload.trace, self.profile)
        pools = find_profile(profile, workload.trace, workload.layer_pools).pools
        return {"PROFILE.csv": profile_csv(pools)}

    def with_profile_of(self, trace: RoutingTrace, folder: Path) -> Self | None:
        return with_profile(self, self.profile, trace, folder)

    def launch(self, case: Case) -> Launch:
        words = ("-ngl", "99", "-ncmoe", "99", *self.serving_words(case), "--moe-cache-profile", "PROFILE.csv")
        return Launch(llama_words(case, *words, "--moe-cache-slots", str(self.slots)))


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
