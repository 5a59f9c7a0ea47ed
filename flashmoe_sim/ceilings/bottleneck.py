"""What holds a run back: reads, misses computed on the CPU, uploads, or computing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from flashmoe_sim.timeline.costs import Costs
from flashmoe_sim.timeline.models.base import ExecutionModel
from flashmoe_sim.timeline.run import simulate
from flashmoe_sim.timeline.work import Work, decoded, tokens_of

# The costs in each kind of bottleneck.
FREED = {
    "read": (
        "chunk_s",
        "warm_chunk_s",
        "family_chunk_s",
        "family_warm_chunk_s",
        "memory_s",
        "resume_s",
    ),
    "cpu": ("cold_expert_s", "merge_s"),
    "upload": ("upload_s", "family_upload_s", "install_s", "fill_s", "family_fill_s"),
    "compute": (
        *("dense_s", "layer_s", "attention_s", "attention_token_s", "expert_s"),
        *("call_s", "hit_call_s", "step_s", "draft_s", "verify_call_s"),
    ),
}
OF_A_MISS = ("read", "cpu", "upload")
LEAST_GAIN = 1e-9


@dataclass(frozen=True)
class Bottleneck:
    """The kind of cost that holds a run back, and the decode speed without each kind.

    kind: `compute` if a run without it gains at least as much as a run whose misses are free; otherwise `read`, `cpu`
        or `upload`, whichever gains most; `none` if no run gains. A miss causes several of these costs, so together
        they are compared with the cost of a hit.
    `read`: demand reads and prefetches, from storage or the page cache.
    `cpu`: misses that the CPU computes in place.
    `upload`: uploads, installs, and the extra time of a first fill.
    `compute`: dense layers, experts and slot lookups, which hits need too.
    tok_s: decode speed. free_tok_s: without each kind. free_misses_tok_s: without all costs of misses. All are infinite
        if nothing else takes time.
    """

    kind: str
    tok_s: float
    free_tok_s: dict[str, float]
    free_misses_tok_s: float


def bottleneck(work: Work, costs: Costs, execution: ExecutionModel) -> Bottleneck:
    """Run the decoded steps again, without the costs of each kind in turn."""
    work = decoded(work)

    def speed(*free: str) -> float:
        return speed_with(work, without(costs, *free), execution)

    now = speed()
    free = {kind: speed(kind) if kind != "cpu" or execution.in_place else now for kind in FREED}
    free_misses = speed(*OF_A_MISS)
    kind = "compute" if free["compute"] >= free_misses else max(OF_A_MISS, key=free.__getitem__)
    if max(free_misses, *free.values()) <= now * (1 + LEAST_GAIN):
        kind = "none"
    return Bottleneck(kind, now, free, free_misses)


def without(costs: Costs, *kinds: str) -> Costs:
    """The costs, with every cost of these kinds of FREED set to 0."""
    free: dict[str, Any] = {name: 0.0 * np.asarray(getattr(costs, name)) for kind in kinds for name in FREED[kind]}
    return replace(costs, **free)


def speed_with(work: Work, costs: Costs, execution: ExecutionModel) -> float:
    """The speed of steps of which all are decoded."""
    return speed_of(tokens_of(work), simulate(work, costs, execution).total_s)


def speed_of(tokens: int, seconds: float) -> float:
    """Tokens a second; infinite if they take no time."""
    return tokens / seconds if seconds else np.inf
