"""What holds a run back: the hit path, installs, or what a miss costs at its source."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from flashmoe_sim.timeline.costs import Costs
from flashmoe_sim.timeline.execution import ExecutionModel
from flashmoe_sim.timeline.run import simulate
from flashmoe_sim.timeline.work import Work, decoded, tokens_of

# What each kind of bottleneck is made of. A system that does not read its misses computes them where they lie.
FREED = {
    "prefetch": (
        "chunk_s",
        "warm_chunk_s",
        "family_chunk_s",
        "family_warm_chunk_s",
        "memory_s",
        "cold_expert_s",
        "merge_s",
        "resume_s",
    ),
    "commit": ("upload_s", "family_upload_s", "install_s", "fill_s", "family_fill_s"),
    "consume": ("dense_s", "expert_s", "call_s", "step_s"),
}
LEAST_GAIN = 1e-9


@dataclass(frozen=True)
class Bottleneck:
    """kind: the one of FREED without which the run is fastest; `none` where the run is as fast without any of them.

    `prefetch`: reads of misses and reads ahead, from storage or the page cache; where the CPU computes misses, that.
    `commit`: uploads, installs, and by how much slots take longer that are filled for the first time. `consume`: what
    hits take too, which is dense layers, experts and finding slots.
    tok_s: decode speed. free_tok_s: without each kind; infinite where nothing else takes time.
    """

    kind: str
    tok_s: float
    free_tok_s: dict[str, float]


def bottleneck(work: Work, costs: Costs, execution: ExecutionModel) -> Bottleneck:
    """Run the decoded steps again, with the costs of each kind taken away in turn."""
    work = decoded(work)
    tokens = tokens_of(work)

    def speed(priced: Costs) -> float:
        return speed_of(tokens, simulate(work, priced, execution).total_s)

    now = speed(costs)
    free = {kind: speed(without(costs, kind)) for kind in FREED}
    kind = max(free, key=free.__getitem__)
    return Bottleneck(kind if free[kind] > now * (1 + LEAST_GAIN) else "none", now, free)


def without(costs: Costs, kind: str) -> Costs:
    """The costs with those of one kind of FREED at 0."""
    free: dict[str, Any] = {name: 0.0 * np.asarray(getattr(costs, name)) for name in FREED[kind]}
    return replace(costs, **free)


def speed_of(tokens: int, seconds: float) -> float:
    """Tokens a second; infinite where they take no time."""
    return tokens / seconds if seconds else np.inf
