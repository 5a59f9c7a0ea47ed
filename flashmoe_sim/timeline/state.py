"""The state of the timeline's loop: one bundle of arrays that its functions read and write.

Columns that are used together are records of one array: passing many arrays from function to function is slow to
compile, and the fields of a record are adjacent in memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim._jit import inlined, jit
from flashmoe_sim.timeline.names import N_RESOURCES
from flashmoe_sim.timeline.work import Costs, Work

# The costs of one row of the model; as in `Costs`.
ROW = np.dtype(
    [(name, np.float64) for name in ("dense_s", "expert_s", "cold_expert_s", "upload_s", "fill_s", "memory_s")]
    + [("chunks", np.int64)]
)

# One tensor family of a row; as in `Costs`. read_s, warm_s: of one of its reads, all of them in flight over `lanes`. If
# a model does not read by family, one stands for the whole expert, whose chunks are read one after another.
FAMILY = np.dtype(
    [(name, np.float64) for name in ("read_s", "warm_s", "fill_s", "upload_s")]
    + [(name, np.int64) for name in ("chunks", "lanes")]
)

# An expert read ahead and its progress: the first four as in `Work`; when it was issued; the service time of one of its
# reads, and how many are in flight with it; how long storage and link still have to work for it; when it was read and
# uploaded, inf until that is known; and whether a call waits for it, so that it is no longer in the background.
AHEAD = np.dtype(
    [
        ("after", np.int64),
        ("row", np.int64),
        ("warm", np.int64),
        ("cold", np.int64),
        ("issued", np.float64),
        ("service_s", np.float64),
        ("depth", np.int64),
        ("read_left", np.float64),
        ("upload_left", np.float64),
        ("arrived", np.float64),
        ("usable", np.float64),
        ("claimed", np.int64),
    ]
)

# An expert that a call waits for, or one of its chunks if chunks are uploaded as they arrive: its place among the
# experts read ahead, or -1 for a miss; when it is read and uploaded; and when it is ready for what comes next.
ITEM = np.dtype([("ahead", np.int64), ("arrived", np.float64), ("uploaded", np.float64), ("due", np.float64)])

# What a resource did. `call`: for an expert read ahead the call after which it was issued, -1 before the first.
SPAN = np.dtype(
    [
        ("resource", np.uint8),
        ("kind", np.uint8),
        ("lane", np.int32),
        ("call", np.int64),
        ("begin", np.float64),
        ("end", np.float64),
    ]
)

# The costs that are the same in every row; as in `Costs`.
SCALARS = (
    *("attention_s", "attention_token_s", "call_s", "hit_call_s", "install_s", "resume_s", "merge_s", "step_s"),
    *("layer_s", "draft_s", "verify_call_s", "verify_times"),
)

# How many of the experts read ahead are issued, and of those how many are read, and uploaded, or claimed by a call; how
# many of `Simulation.by_use` have been reached; how many spans there were, recorded or not; whether spans are recorded;
# when storage and link are free; and the costs that depend on no row.
STATE = np.dtype(
    [(name, np.int64) for name in ("issued", "read", "uploaded", "used", "spans", "recording")]
    + [(name, np.float64) for name in ("storage_free", "link_free", *SCALARS)]
)


class Simulation(NamedTuple):
    """Everything that the loop's functions share.

    rows: ROW [rows]. families: FAMILY [rows, families]. read_s: f64 [2, rows, lanes], `Costs.chunk_s` and
        `warm_chunk_s`.
    lane_free: f64 [lanes], when each lane of the storage is free. busy: f64 [N_RESOURCES], summed over lanes.
    ahead: AHEAD [ahead].
    by_use, use: i64 [used], the experts of `ahead` that are used, ordered by the call that uses them, and that call.
    items: ITEM [most of any call], late experts first, then misses, cold before warm. order: i64, a permutation of
        them.
    spans: SPAN [room]. state: STATE [1].
    """

    rows: Any
    families: Any
    read_s: NDArray[np.float64]
    lane_free: NDArray[np.float64]
    busy: NDArray[np.float64]
    ahead: Any
    by_use: NDArray[np.int64]
    use: NDArray[np.int64]
    items: Any
    order: NDArray[np.int64]
    spans: Any
    state: Any


def new_simulation(work: Work, costs: Costs, *, by_family: bool, room: int, recording: bool) -> Simulation:
    """Everything at time 0, with room for this many spans."""
    rows = np.zeros(len(costs.dense_s), ROW)
    for name in ROW.names or ():
        rows[name] = getattr(costs, name)
    ahead = np.zeros(len(work.ahead_after), AHEAD)
    for name in ("after", "row", "warm", "cold"):
        ahead[name] = getattr(work, f"ahead_{name}")
    ahead["arrived"] = ahead["usable"] = np.inf
    by_use = np.argsort(work.ahead_used, kind="stable")[np.count_nonzero(work.ahead_used < 0) :]
    use = work.ahead_used[by_use].astype(np.int64)
    items = work.misses * costs.chunks.max(initial=1)
    if len(use):
        items = items + np.bincount(use, minlength=len(work.row))
    most = int(items.max(initial=0))
    state = np.zeros(1, STATE)
    state["recording"] = recording
    for name in SCALARS:
        state[name] = getattr(costs, name)
    return Simulation(
        rows=rows,
        families=_families(costs) if by_family else _whole_experts(costs),
        read_s=np.stack([costs.chunk_s, costs.warm_chunk_s]),
        lane_free=np.zeros(costs.chunk_s.shape[1]),
        busy=np.zeros(N_RESOURCES),
        ahead=ahead,
        by_use=by_use,
        use=use,
        items=np.zeros(most, ITEM),
        order=np.zeros(most, np.int64),
        spans=np.zeros(room, SPAN),
        state=state,
    )


def _families(costs: Costs) -> NDArray[np.void]:
    families = np.zeros(costs.family_chunks.shape, FAMILY)
    families["chunks"], families["lanes"] = costs.family_chunks, costs.chunk_s.shape[1]
    families["fill_s"], families["upload_s"] = costs.family_fill_s, costs.family_upload_s
    row, family = np.ogrid[: len(costs.family_chunks), : costs.family_chunks.shape[1]]
    depth = _depths(costs.family_chunks, costs.chunk_s.shape[1]) - 1
    families["read_s"] = costs.family_chunk_s[row, family, depth]
    families["warm_s"] = costs.family_warm_chunk_s[row, family, depth]
    return families


def _whole_experts(costs: Costs) -> NDArray[np.void]:
    families = np.zeros((len(costs.chunks), 1), FAMILY)
    families["chunks"][:, 0], families["lanes"] = costs.chunks, 1
    families["fill_s"][:, 0], families["upload_s"][:, 0] = costs.fill_s, costs.upload_s
    families["read_s"], families["warm_s"] = costs.chunk_s[:, :1], costs.warm_chunk_s[:, :1]
    return families


def _depths(chunks: NDArray[np.int32], lanes: int) -> NDArray[np.int64]:
    """`storage.depth_of` of many batches."""
    rounds = np.maximum(-(-chunks // lanes), 1)
    return np.maximum(-(-chunks // rounds), 1).astype(np.int64)


@inlined
def note(sim: Any, resource: int, lane: int, kind: int, call: int, begin: float, end: float) -> None:
    """Record a span if spans are recorded."""
    if sim.state[0].recording:
        _keep(sim.spans, sim.state, resource, lane, kind, call, begin, end)


@jit  # not inlined: many places record, and most runs do not
def _keep(spans: Any, state: Any, resource: int, lane: int, kind: int, call: int, begin: float, end: float) -> None:
    n = state[0].spans
    state[0].spans = n + 1
    if n < len(spans):
        span = spans[n]
        span.resource = resource
        span.kind = kind
        span.lane = lane
        span.call = call
        span.begin = begin
        span.end = end


@inlined
def sort_items(sim: Any, n: int) -> None:
    """Order the first `n` items by when they are due, and items due together by number."""
    for k in range(n):
        place = k
        while place > 0 and sim.items[sim.order[place - 1]].due > sim.items[k].due:
            sim.order[place] = sim.order[place - 1]
            place -= 1
        sim.order[place] = k


@inlined
def work_on(sim: Any, resource: int, kind: int, call: int, begin: float, seconds: float) -> float:
    """Keep a resource with one lane busy from `begin` on; return the end."""
    sim.busy[resource] += seconds
    note(sim, resource, 0, kind, call, begin, begin + seconds)
    return begin + seconds
