"""The bandwidth limit: how long each resource would take alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.ceilings.bottleneck import speed_of
from flashmoe_sim.timeline.costs import Costs
from flashmoe_sim.timeline.models.base import ExecutionModel
from flashmoe_sim.timeline.names import RESOURCES
from flashmoe_sim.timeline.run import simulate
from flashmoe_sim.timeline.work import OF_READS_AHEAD, Work, decoded, tokens_of


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
