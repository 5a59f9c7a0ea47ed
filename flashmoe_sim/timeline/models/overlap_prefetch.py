"""Computing beside reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from flashmoe_sim._jit import inlined
from flashmoe_sim.timeline.ahead import read_beside
from flashmoe_sim.timeline.background import claim, upload_items
from flashmoe_sim.timeline.models.base import Call, ExecutionModel
from flashmoe_sim.timeline.names import (
    EXPERTS,
    HOST,
    IS_EXPERTS,
    IS_INSTALL,
    LATE,
    ON_COMPUTE,
    ON_HOST,
    READ,
    UPLOAD,
)
from flashmoe_sim.timeline.state import sort_items, work_on
from flashmoe_sim.timeline.storage import Batch, read_batch


@inlined
def serve(sim: Any, call: Call, parts: Any) -> float:
    costs = sim.rows[call.row]
    used = sim.state[0].used
    late = claim(sim, call.number, call.ready, call.misses > 0)
    on_time = sim.state[0].used - used - late
    first = max(call.ready, sim.state[0].storage_free)
    last = read_batch(sim, call, Batch(late, call.misses, call.warm, call.fills, costs.chunks), first)
    if call.misses > 0:
        sim.state[0].storage_free = last
    items = late + call.misses
    upload_items(sim, items, costs.upload_s, call.number)
    share = min(call.misses * costs.memory_s / (last - first), 1.0) if last > first else 0.0
    hits_s = (call.requests - items) * call.expert_s + on_time * costs.memory_s
    hits_end = compute_beside_reads(sim, call, parts, call.ready, hits_s, first, last, share)
    end: float = compute_as_usable(sim, call, parts, items, hits_end, first, last, share)
    return end


@inlined
def compute_beside_reads(
    sim: Any, call: Call, parts: Any, begin: float, seconds: float, first: float, last: float, share: float
) -> float:
    """Compute for `seconds`, slowed by a share while the call's reads go on, from `first` to `last`."""
    end: float = begin + seconds
    if share > 0.0 and begin < last and end > first:
        beside = max(begin, first)
        left = seconds - (beside - begin)
        done = (last - beside) * (1.0 - share)
        end = beside + left / (1.0 - share) if left < done else last + (left - done)
    if seconds > 0.0:
        end = work_on(sim, ON_COMPUTE, IS_EXPERTS, call.number, begin, end - begin)
        parts[EXPERTS] += end - begin
    return end


@inlined
def compute_as_usable(
    sim: Any, call: Call, parts: Any, items: int, hits_end: float, first: float, last: float, share: float
) -> float:
    """Compute the first `items` items, each once it is usable, after the hits; see `compute_beside_reads`.

    The host installs one miss at a time, in the order in which uploads ended; a late expert needs no install. While the
    unit waits for a miss, the time until it has arrived is `read`, then until it is uploaded `upload`, and the rest
    `host`; all waiting for a late expert is `late`. If both are usable at the same time, the late one goes first.
    """
    memory_s = sim.rows[call.row].memory_s
    sort_items(sim, items)
    host_free = call.ready
    for k in range(items):
        item = sim.items[sim.order[k]]
        if item.ahead < 0:
            begin = max(host_free, item.uploaded)
            host_free = work_on(sim, ON_HOST, IS_INSTALL, call.number, begin, sim.state[0].install_s)
            item.due = host_free
    sort_items(sim, items)
    clock = hits_end
    for k in range(items):
        item = sim.items[sim.order[k]]
        usable = max(clock, item.due)
        if item.ahead >= 0:
            parts[LATE] += usable - clock
        else:
            arrived = max(clock, item.arrived)
            uploaded = max(arrived, item.uploaded)
            parts[READ] += arrived - clock
            parts[UPLOAD] += uploaded - arrived
            parts[HOST] += usable - uploaded
        seconds = call.expert_s + memory_s if item.ahead >= 0 else call.expert_s
        clock = compute_beside_reads(sim, call, parts, usable, seconds, first, last, share)
    return clock


@dataclass(frozen=True)
class OverlapPrefetch(ExecutionModel):
    """Hits are computed while misses are read, and misses as they arrive. Prefetches run behind demand reads.

    If reads and computing share one memory, an expert's bytes slow computing by `memory_s`: the call's own misses while
    they are read, in proportion to the time; an expert read ahead slows the call that uses it, whenever it was read. An
    expert that is never used gets only the bandwidth that computing leaves.
    """

    name: ClassVar[str] = "overlap-prefetch"
    describes: ClassVar[str] = "streaming engines with a predictor and a queue of reads by priority"
    beside_compute: ClassVar[bool] = True
    in_background: ClassVar[bool] = True
    serve: ClassVar[Any] = serve
    after: ClassVar[Any] = read_beside
