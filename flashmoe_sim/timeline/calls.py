"""How the experts of one routed call are served, once those that arrive together have: the ways of `execution.py`.

Each function adds the time that passes to the parts of the call, f64 [N_PARTS], and returns when it is over. Parts are
differences of the clock, so that they add up to the time passed whatever the clock shows.
"""

from __future__ import annotations

from typing import Any

from flashmoe_sim._jit import inlined
from flashmoe_sim.timeline.background import read_before, upload_now, use_link
from flashmoe_sim.timeline.names import (
    COLD_LANE,
    EXPERTS,
    HOST,
    IS_COLD_EXPERTS,
    IS_EXPERTS,
    IS_INSTALL,
    IS_MERGE,
    IS_READ,
    IS_RESUME,
    IS_UPLOAD,
    IS_WARM_READ,
    LATE,
    MERGE,
    ON_COLD_LANE,
    ON_COMPUTE,
    ON_HOST,
    ON_STORAGE,
    READ,
    UPLOAD,
)
from flashmoe_sim.timeline.state import note, sort_items, work_on
from flashmoe_sim.timeline.storage import read_batch, read_family


@inlined
def compute(sim: Any, parts: Any, call: int, begin: float, n: int, expert_s: float) -> float:
    """n experts on the unit that computes."""
    if n == 0:
        return begin
    end: float = work_on(sim, ON_COMPUTE, IS_EXPERTS, call, begin, n * expert_s)
    parts[EXPERTS] += end - begin
    return end


@inlined
def compute_beside_reads(
    sim: Any, parts: Any, call: int, begin: float, seconds: float, first: float, last: float, share: float
) -> float:
    """Computing that loses a share of its speed to the reads of the call, which go from `first` to `last`."""
    end: float = begin + seconds
    if share > 0.0 and begin < last and end > first:
        beside = max(begin, first)
        left = seconds - (beside - begin)
        done = (last - beside) * (1.0 - share)
        end = beside + left / (1.0 - share) if left < done else last + (left - done)
    if seconds > 0.0:
        end = work_on(sim, ON_COMPUTE, IS_EXPERTS, call, begin, end - begin)
        parts[EXPERTS] += end - begin
    return end


@inlined
def install(sim: Any, parts: Any, call: int, begin: float, n: int) -> float:
    """n installs on the host."""
    if n == 0:
        return begin
    end: float = work_on(sim, ON_HOST, IS_INSTALL, call, begin, n * sim.state[0].install_s)
    parts[HOST] += end - begin
    return end


@inlined
def resume(sim: Any, parts: Any, call: int, begin: float) -> float:
    """A call goes on that waited for its misses."""
    end: float = work_on(sim, ON_HOST, IS_RESUME, call, begin, sim.state[0].resume_s)
    parts[HOST] += end - begin
    return end


@inlined
def upload(sim: Any, parts: Any, call: int, begin: float, n: int, upload_s: float) -> float:
    """n experts over the link, which is free."""
    if n == 0 or upload_s == 0.0:
        return begin
    end: float = use_link(sim, begin, begin + n * upload_s, IS_UPLOAD, call)
    parts[UPLOAD] += end - begin
    return end


@inlined
def install_in_turn(sim: Any, parts: Any, call: int, read: float, misses: int, upload_s: float) -> float:
    """Misses that have all been read at `read`: each in turn is uploaded and installed."""
    clock = read
    for _ in range(misses):
        clock = install(sim, parts, call, upload(sim, parts, call, clock, 1, upload_s), 1)
    return clock


@inlined
def one_by_one(
    sim: Any, parts: Any, call: int, ready: float, misses: int, warm: int, fills: int, row: int, upload_s: float
) -> float:
    """Each miss in turn: its chunks one after another on lane 0, its upload where that takes time, its install."""
    clock = ready
    for i in range(misses):
        is_warm = int(i >= misses - warm)
        service_s, kind = sim.read_s[is_warm, row, 0], IS_WARM_READ if is_warm else IS_READ
        if i < fills:
            service_s += sim.rows[row].fill_s
        begin = clock
        for _ in range(sim.rows[row].chunks):
            note(sim, ON_STORAGE, 0, kind, call, clock, clock + service_s)
            clock += service_s
        sim.busy[ON_STORAGE] += sim.rows[row].chunks * service_s
        parts[READ] += clock - begin
        clock = install_in_turn(sim, parts, call, clock, 1, upload_s)
    return clock


@inlined
def by_family(sim: Any, parts: Any, call: int, ready: float, misses: int, warm: int, fills: int, row: int) -> float:
    """Each miss in turn, its families in turn: all reads of one, its upload where that takes time; then its install."""
    clock = ready
    for i in range(misses):
        is_warm = i >= misses - warm
        for f in range(sim.families.shape[1]):
            arrived = read_family(sim, row, f, is_warm, i < fills, clock, IS_WARM_READ if is_warm else IS_READ, call)
            parts[READ] += arrived - clock
            clock = upload(sim, parts, call, arrived, 1, sim.families[row, f].upload_s)
        clock = install(sim, parts, call, clock, 1)
    return clock


@inlined
def wait_for_items(sim: Any, parts: Any, late: int, ready: float, arrived: float, uploaded: float) -> float:
    """Wait for the first `late` items, then for the misses behind them: read by `arrived`, there from `uploaded` on."""
    late_end = ready
    for item in range(late):
        late_end = max(late_end, sim.items[item].uploaded)
    parts[LATE] += late_end - ready
    read_end = max(late_end, arrived)
    parts[READ] += read_end - late_end
    parts[UPLOAD] += uploaded - read_end
    return uploaded


@inlined
def install_beside(sim: Any, parts: Any, call: int, there: float, both: float, n: int, upload_s: float) -> float:
    """Upload n misses that RAM holds from `there` on, beside two lanes that end at `both`; then install them."""
    uploaded = both
    if upload_s > 0.0:
        for _ in range(n):
            uploaded = max(uploaded, upload_now(sim, there, upload_s, call))
    parts[UPLOAD] += uploaded - both
    installed: float = install(sim, parts, call, uploaded, n)
    return installed


@inlined
def compute_as_usable(
    sim: Any,
    parts: Any,
    call: int,
    n: int,
    ready: float,
    hits_end: float,
    expert_s: float,
    memory_s: float,
    first: float,
    last: float,
    share: float,
) -> float:
    """The first `n` items: each is computed once it is usable, after the hits; see `compute_beside_reads`.

    The host installs one miss at a time, in the order in which their uploads ended; a late expert needs no install. Of
    the time that the unit waits for a miss, what passes until it has arrived is `read`, then until it is uploaded
    `upload`, and the rest `host`; all that it waits for a late expert is `late`. Where both are usable at the same time
    the late one goes first.
    """
    sort_items(sim, n)
    host_free = ready
    for k in range(n):
        item = sim.items[sim.order[k]]
        if item.ahead < 0:
            begin = max(host_free, item.uploaded)
            host_free = work_on(sim, ON_HOST, IS_INSTALL, call, begin, sim.state[0].install_s)
            item.due = host_free
    sort_items(sim, n)
    clock = hits_end
    for k in range(n):
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
        seconds = expert_s + memory_s if item.ahead >= 0 else expert_s
        clock = compute_beside_reads(sim, parts, call, usable, seconds, first, last, share)
    return clock


@inlined
def two_lanes(
    sim: Any,
    parts: Any,
    call: int,
    row: int,
    ready: float,
    requests: int,
    misses: int,
    stored: int,
    fills: int,
    first: int,
    expert_s: float,
    cold_expert_s: float,
    min_parallel: int,
) -> tuple[float, float]:
    """Hits on the GPU and misses on the CPU: side by side if both have work and the call is large enough.

    stored: the misses that RAM does not hold, read as items from `first` on.
    Returns when the call has been computed, and from when on RAM held all its misses.
    """
    hot_end: float = compute(sim, parts, call, ready, requests - misses, expert_s)
    if misses == 0:
        return hot_end, ready
    side_by_side = misses < requests and requests >= min_parallel
    there: float = ready if side_by_side else hot_end
    if stored > 0:
        read_before(sim, there, True)
        there = read_batch(sim, first, stored, 0, fills, sim.rows[row].chunks, row, there, call)
        sim.state[0].storage_free = there
    cold_end = work_on(sim, ON_COLD_LANE, IS_COLD_EXPERTS, call, there, misses * cold_expert_s)
    both_end: float = max(hot_end, cold_end)
    read_end = max(hot_end, there)
    parts[READ] += read_end - hot_end
    parts[COLD_LANE] += both_end - read_end
    if not side_by_side:
        return both_end, there
    merged: float = work_on(sim, ON_COMPUTE, IS_MERGE, call, both_end, sim.state[0].merge_s)
    parts[MERGE] += merged - both_end
    return merged, there
