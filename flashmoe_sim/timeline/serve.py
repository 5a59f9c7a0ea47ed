"""How a routed call is served: one kernel for all execution models, whose `CallSteps` say what it does.

Misses are read one by one or as one batch. What is read is uploaded and installed, if the model does either, and then
all experts are computed: after the misses, while they are read, or in two lanes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from flashmoe_sim._jit import inlined
from flashmoe_sim.timeline.background import claim, read_before, upload_items, upload_now, use_link
from flashmoe_sim.timeline.calls import compute, compute_all, install, upload, wait_for_items
from flashmoe_sim.timeline.names import (
    AS_READ,
    BESIDE_READS,
    COLD_LANE,
    EVERYTHING,
    EXPERTS,
    HOST,
    IN_TURN,
    IS_COLD_EXPERTS,
    IS_EXPERTS,
    IS_INSTALL,
    IS_MERGE,
    IS_READ,
    IS_UPLOAD,
    IS_WARM_READ,
    LATE,
    MERGE,
    ON_COLD_LANE,
    ON_COMPUTE,
    ON_HOST,
    READ,
    UPLOAD,
    WHILE_COMPUTING,
    WHOLE,
)
from flashmoe_sim.timeline.state import sort_items, work_on
from flashmoe_sim.timeline.storage import Batch, arrive, read_batch, read_family


@inlined
def serve(sim: Any, call: Any, parts: Any) -> float:
    """Serve a routed call; return the time when its experts are computed."""
    steps, usable = call.steps, call.ready
    if steps.one_by_one:
        usable = one_by_one(sim, call, parts, call.ready)
    elif call.misses > 0 or steps.in_background:
        costs, late, on_time, first = sim.rows[call.row], 0, 0, call.ready
        hot_end: float = call.ready
        in_lanes = steps.two_lanes and call.n_tokens < steps.copies_from
        in_lanes = in_lanes and not (steps.installs_on_gpu and call.installs == call.misses)
        each = costs.chunks if steps.by_chunk else 1
        stored = call.misses - call.warm if steps.two_lanes else call.misses * each
        # Experts that were read ahead
        if steps.in_background:
            used = sim.state[0].used
            late = claim(sim, call.number, call.ready, stored > 0 and not in_lanes)
            on_time = sim.state[0].used - used - late
        # Hits, if the CPU computes misses; then the reads
        if in_lanes:
            uploaded = max(call.ready, upload_items(sim, late, 0.0, call.number))
            begin = wait_for_items(sim, call, parts, late, call.ready, uploaded)
            hot_end = begin if steps.installs_on_gpu else compute(sim, call, parts, begin, hot_experts(call))
            if call.misses == 0:
                return hot_end
            first = begin if side_by_side(call, call.requests - call.misses) else hot_end
            if stored > 0:
                read_before(sim, first, True)
        elif stored > 0:
            first = max(call.ready, sim.state[0].storage_free)
        read = first
        if stored > 0:
            warm, chunks = 0 if steps.two_lanes else call.warm * each, 1 if steps.by_chunk else costs.chunks
            read = read_batch(sim, call, Batch(late, stored, warm, call.fills * each, chunks), first)
            sim.state[0].storage_free = read
        if in_lanes and steps.installs_on_gpu:
            all_end: float = installs_on_gpu(sim, call, parts, hot_end, read)
            return all_end
        if in_lanes:
            both_end: float = cold_lane(sim, call, parts, hot_end, read)
            return both_end
        # Uploads of experts that the GPU computes
        items, uploaded = late + call.misses * each, read
        for item in range(late + stored, items):
            arrive(sim, item, call.ready)
        if steps.uploads in (AS_READ, WHILE_COMPUTING):
            uploaded = max(read, upload_items(sim, items, costs.upload_s / each, call.number))
        # Computing while experts arrive, or once they are there
        if steps.beside_compute:
            share = min(call.misses * costs.memory_s / (read - first), 1.0) if read > first else 0.0
            reads = Reads(first, read, share)
            hits_s = (call.requests - items) * call.expert_s + on_time * costs.memory_s
            hits_end = compute_beside(sim, call, parts, call.ready, hits_s, reads)
            all_computed: float = compute_as_usable(sim, call, parts, items, hits_end, reads)
            return all_computed
        if steps.uploads == WHILE_COMPUTING:
            computed = compute(sim, call, parts, call.ready, call.requests)
            both_done: float = max(computed, uploaded)
            parts[UPLOAD] += both_done - computed
            return both_done
        if steps.uploads == AS_READ:
            there = wait_for_items(sim, call, parts, late, read, uploaded)
            usable = install(sim, call, parts, there, call.installs if steps.two_lanes else call.misses)
        else:
            usable = read
            parts[READ] += read - call.ready
            for _ in range(call.misses if steps.uploads == IN_TURN else 0):
                usable = install(sim, call, parts, upload(sim, call, parts, usable, 1, costs.upload_s), 1)
    end: float = compute_all(sim, call, parts, usable)
    return end


@inlined
def one_by_one(sim: Any, call: Any, parts: Any, begin: float) -> float:
    """Read each miss in turn, one tensor family after another, and upload it before the next or beside its reads."""
    uploads, clock, uploaded = call.steps.uploads, begin, begin
    for i in range(call.misses):
        warm = i >= call.misses - call.warm
        for f in range(sim.families.shape[1]):
            kind = IS_WARM_READ if warm else IS_READ
            read = read_family(sim, call.row, f, warm, i < call.fills, clock, kind, call.number)
            parts[READ] += read - clock
            clock, upload_s = read, sim.families[call.row, f].upload_s
            if uploads == IN_TURN:
                clock = upload(sim, call, parts, read, 1, upload_s)
            elif uploads == BESIDE_READS:
                upload_from = max(uploaded, read)
                uploaded = use_link(sim, upload_from, upload_from + upload_s, IS_UPLOAD, call.number)
        if uploads != BESIDE_READS:
            clock = install(sim, call, parts, clock, 1)
    if uploads == BESIDE_READS:
        usable = max(clock, uploaded)
        parts[UPLOAD] += usable - clock
        clock = install(sim, call, parts, usable, call.misses)
    elif uploads == EVERYTHING:
        clock = upload(sim, call, parts, clock, call.requests, sim.rows[call.row].upload_s)
    return clock


@inlined
def hot_experts(call: Any) -> int:
    """How many experts the GPU computes of a call in two lanes."""
    hot: int = call.requests - call.misses
    return call.requests if call.steps.padded and hot > 0 else hot


@inlined
def side_by_side(call: Any, on_gpu: int) -> bool:
    """Whether both lanes have work, and the call is large enough for them to run in parallel."""
    both: bool = 0 < on_gpu < call.requests and call.requests >= call.steps.threshold
    return both


@inlined
def cold_lane(sim: Any, call: Any, parts: Any, hot_end: float, there: float) -> float:
    """Compute misses on the CPU once all are in RAM, `there`, beside the GPU or after it; wait for both.

    A share of the misses is uploaded from then on and computed on the GPU after the hits. Those that the call installs
    follow them on the link, and the call waits for them.
    """
    upload_s, fetched = sim.rows[call.row].upload_s, call.misses * call.steps.share // WHOLE
    cold_s = (call.misses - fetched) * call.cold_expert_s
    cold_end = work_on(sim, ON_COLD_LANE, IS_COLD_EXPERTS, call.number, there, cold_s)
    read_end = max(hot_end, there)
    arrived, uploaded = read_end, read_end
    if upload_s > 0.0:
        for i in range(fetched + call.installs):
            uploaded = upload_now(sim, there, upload_s, call.number)
            if i < fetched:
                arrived = max(read_end, uploaded)
    gpu_end = compute(sim, call, parts, arrived, fetched)
    both_end = max(gpu_end, cold_end)
    parts[READ] += read_end - hot_end
    parts[UPLOAD] += arrived - read_end
    parts[COLD_LANE] += both_end - gpu_end
    both_end = merge(sim, call, parts, both_end, call.requests - call.misses + fetched)
    installable = max(both_end, uploaded)
    parts[UPLOAD] += installable - both_end
    installed: float = install(sim, call, parts, installable, call.installs)
    return installed


@inlined
def installs_on_gpu(sim: Any, call: Any, parts: Any, begin: float, there: float) -> float:
    """Upload what the call installs, and compute it on the GPU with the hits, beside the other misses on the CPU.

    The misses are in RAM at `there`.
    """
    upload_s, on_cpu = sim.rows[call.row].upload_s, call.misses - call.installs
    cold_end = work_on(sim, ON_COLD_LANE, IS_COLD_EXPERTS, call.number, there, on_cpu * call.cold_expert_s)
    uploaded = there
    for _ in range(call.installs if upload_s > 0.0 else 0):
        uploaded = upload_now(sim, there, upload_s, call.number)
    parts[READ] += there - begin
    parts[UPLOAD] += uploaded - there
    usable = install(sim, call, parts, uploaded, call.installs)
    gpu_end = compute(sim, call, parts, usable, call.requests - on_cpu)
    both_end = max(gpu_end, cold_end)
    parts[COLD_LANE] += both_end - gpu_end
    merged: float = merge(sim, call, parts, both_end, call.requests - on_cpu)
    return merged


@inlined
def merge(sim: Any, call: Any, parts: Any, begin: float, on_gpu: int) -> float:
    """Join the results of two lanes, if both had work beside each other."""
    end = begin
    if side_by_side(call, on_gpu):
        end = work_on(sim, ON_COMPUTE, IS_MERGE, call.number, begin, sim.state[0].merge_s)
        parts[MERGE] += end - begin
    return end


class Reads(NamedTuple):
    """The reads of a call, from `first` to `last`, which slow what is computed beside them by a share."""

    first: float
    last: float
    share: float


@inlined
def compute_beside(sim: Any, call: Any, parts: Any, begin: float, seconds: float, reads: Any) -> float:
    """Compute for `seconds`, slowed by a share while the call's reads go on."""
    end: float = begin + seconds
    if reads.share > 0.0 and begin < reads.last and end > reads.first:
        beside = max(begin, reads.first)
        left = seconds - (beside - begin)
        done = (reads.last - beside) * (1.0 - reads.share)
        end = beside + left / (1.0 - reads.share) if left < done else reads.last + (left - done)
    if seconds > 0.0:
        end = work_on(sim, ON_COMPUTE, IS_EXPERTS, call.number, begin, end - begin)
        parts[EXPERTS] += end - begin
    return end


@inlined
def compute_as_usable(sim: Any, call: Any, parts: Any, items: int, hits_end: float, reads: Any) -> float:
    """Compute the first `items` items, each once it is usable, after the hits; see `compute_beside`.

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
        clock = compute_beside(sim, call, parts, usable, seconds, reads)
    return clock
