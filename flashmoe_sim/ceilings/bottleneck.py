"""What holds a run back (reads, misses computed on the CPU, uploads, computing), and each resource alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.timeline.models.base import ExecutionModel
from flashmoe_sim.timeline.names import RESOURCES
from flashmoe_sim.timeline.run import simulate
from flashmoe_sim.timeline.work import OF_READS_AHEAD, Costs, Work, decoded, tokens_of

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


@dataclass(frozen=True)
class Floor:
    """resource: the one that is busy longest. tok_s: decode speed if all other work were hidden behind it.

    busy_ms_per_token: of compute, cold_lane (the CPU beside a GPU), storage, page_cache, link and host.
    """

    resource: str
    tok_s: float
    busy_ms_per_token: dict[str, float]


def floor_of(work: Work, costs: Costs, execution: ExecutionModel) -> Floor:
    """How long the decoded steps keep each resource busy.

    Reads from storage and page cache count at their best rate, with as many in flight as that takes; in the run, a
    single read in flight may not use all of it. Of the experts read ahead in the background, only the used ones count.
    The memory bandwidth that reads take from computing is not included.
    """
    work = decoded(work)
    if execution.in_background:
        used = work.ahead_used >= 0
        work = replace(work, **{name: getattr(work, name)[used] for name in OF_READS_AHEAD})
    timeline = simulate(work, replace(costs, memory_s=0 * costs.memory_s), execution)
    busy_s = dict(zip(RESOURCES, timeline.busy.tolist(), strict=True))
    rows = len(costs.chunks)
    chunks, read_s, warm_s = costs.chunks, costs.chunk_s, costs.warm_chunk_s
    if execution.by_family:
        chunks, read_s, warm_s = costs.family_chunks, costs.family_chunk_s, costs.family_warm_chunk_s
    for name, service_s, missed, served in (
        ("storage", read_s, work.misses - work.warm, work.ahead_warm == 0),
        ("page_cache", warm_s * (not execution.in_place), work.warm, work.ahead_warm != 0),
    ):
        experts = np.bincount(work.row, missed, rows) * execution.reads
        experts += np.bincount(work.ahead_row[served], minlength=rows) * execution.reads_ahead
        busy_s[name] = float(experts @ _best_read_s(chunks, service_s))
    resource = max(busy_s, key=busy_s.__getitem__)
    tokens = tokens_of(work)
    return Floor(
        resource,
        speed_of(tokens, busy_s[resource]),
        {name: 1e3 * seconds / max(tokens, 1) for name, seconds in busy_s.items()},
    )


def _best_read_s(chunks: NDArray[np.int32], service_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Seconds to read one expert with the best number of reads in flight, f64 [rows].

    chunks: i32 [rows] or [rows, families]. service_s: f64 [*chunks, lanes].
    """
    in_flight = np.arange(1, service_s.shape[-1] + 1)
    best_s = chunks * (service_s / in_flight).min(axis=-1)
    each_s: NDArray[np.float64] = best_s.reshape(len(chunks), -1).sum(axis=1)
    return each_s
