"""Reads and uploads ahead of need: they start only where nothing that a call waits for could start.

Everything here is evaluated as late as possible: what starts before a time is worked out once something else happens at
that time. Where both could start at the same time, what a call waits for goes first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flashmoe_sim._jit import inlined
from flashmoe_sim.timeline.names import IS_READ_AHEAD, IS_UPLOAD, IS_UPLOAD_AHEAD, ON_LINK
from flashmoe_sim.timeline.state import sort_items, work_on
from flashmoe_sim.timeline.storage import depth_of, earliest_lane, read_on


@inlined
def issue(sim: Any, call: int, time: float, in_place: bool) -> None:
    """Enter the experts issued after `call` into the queues at `time`, as one batch in the order they have.

    in_place: what RAM holds is uploaded from where it lies, without a read.
    """
    state = sim.state[0]
    begin = state.issued
    end, cold, warm = begin, 0, 0
    while end < len(sim.ahead) and sim.ahead[end].after == call:
        chunks = sim.rows[sim.ahead[end].row].chunks
        if sim.ahead[end].warm:
            warm += chunks
        else:
            cold += chunks
        end += 1
    state.issued = end
    cold_depth, warm_depth = depth_of(cold, len(sim.lane_free)), depth_of(warm, len(sim.lane_free))
    for i in range(begin, end):
        expert = sim.ahead[i]
        expert.issued = time
        expert.arrived = time
        expert.service_s = sim.read_s[expert.warm, expert.row, (warm_depth if expert.warm else cold_depth) - 1]
        if expert.cold:
            expert.service_s += sim.rows[expert.row].fill_s
        if in_place and expert.warm:
            expert.reads = sim.rows[expert.row].chunks
            all_read(sim, i)


@inlined
def all_read(sim: Any, i: int) -> None:
    """All reads of expert `i` have started: it is usable once they end, or its upload joins the queue."""
    arrived = sim.ahead[i].arrived
    if sim.rows[sim.ahead[i].row].upload_s == 0.0:
        sim.ahead[i].usable = arrived
        return
    place = sim.state[0].queued
    sim.state[0].queued = place + 1
    while place > sim.state[0].uploaded and sim.ahead[sim.queue[place - 1]].arrived > arrived:
        sim.queue[place] = sim.queue[place - 1]
        place -= 1
    sim.queue[place] = i


@inlined
def read_next(sim: Any, i: int, lane: int, time: float) -> None:
    """Start the next read of expert `i`, which is there from `time` on."""
    expert = sim.ahead[i]
    end = read_on(sim, lane, time, expert.service_s, IS_READ_AHEAD, expert.after)
    expert.arrived = max(expert.arrived, end)
    expert.reads += 1


@inlined
def read_before(sim: Any, until: float) -> None:
    """Start every read ahead that starts before `until`."""
    state = sim.state[0]
    while state.read < state.issued:
        i = state.read
        expert = sim.ahead[i]
        chunks = sim.rows[expert.row].chunks
        while expert.reads < chunks:
            lane = earliest_lane(sim, expert.issued)
            if max(sim.lane_free[lane], expert.issued) >= until:
                return
            read_next(sim, i, lane, expert.issued)
            if expert.reads == chunks:
                all_read(sim, i)
        state.read = i + 1


@inlined
def upload_one_before(sim: Any, until: float) -> bool:
    """Start the first upload of the queue if it starts before `until`; returns whether it did."""
    state = sim.state[0]
    while state.uploaded < state.queued:
        expert = sim.ahead[sim.queue[state.uploaded]]
        begin = max(state.link_free, expert.arrived)
        if not expert.claimed:
            if begin >= until:
                return False
            expert.usable = use_link(sim, begin, sim.rows[expert.row].upload_s, IS_UPLOAD_AHEAD, expert.after)
        state.uploaded += 1
        if not expert.claimed:
            return True
    return False


@inlined
def use_link(sim: Any, begin: float, upload_s: float, kind: int, call: int) -> float:
    """Upload from `begin` on; returns the end."""
    end: float = work_on(sim, ON_LINK, kind, call, begin, upload_s)
    sim.state[0].link_free = end
    return end


@inlined
def advance(sim: Any, until: float) -> None:
    """Start everything in the background that starts before `until`."""
    read_before(sim, until)
    while upload_one_before(sim, until):
        pass


@inlined
def claim(sim: Any, call: int, time: float) -> int:
    """Find the experts read ahead that `call` uses and that are not usable by `time`: items 0, 1, …; returns how many.

    Their reads that have not started yet start before any other, with the service time they had. An item is
    due when its upload can start, never before `time`.
    """
    advance(sim, time)
    state = sim.state[0]
    late = 0
    while state.used < len(sim.use) and sim.use[state.used] == call:
        i = sim.by_use[state.used]
        state.used += 1
        expert = sim.ahead[i]
        if expert.usable <= time:
            continue
        expert.claimed = 1
        while expert.reads < sim.rows[expert.row].chunks:
            read_next(sim, i, earliest_lane(sim, time), time)
        sim.items[late].ahead = i
        sim.items[late].due = max(time, expert.arrived)
        late += 1
    return late


@inlined
def upload_items(sim: Any, n: int, upload_s: float, call: int) -> float:
    """Upload the first `n` items in the order of their arrival; returns when the last has been, -inf where n is 0."""
    sort_items(sim, n)
    last = -np.inf
    for k in range(n):
        item = sim.items[sim.order[k]]
        if item.ahead >= 0 and sim.ahead[item.ahead].usable < np.inf:
            item.uploaded = sim.ahead[item.ahead].usable  # under way when the call came to need it
        elif upload_s == 0.0:
            item.uploaded = item.due
        else:
            item.uploaded = upload_at(sim, item.due, upload_s, call)
        item.due = item.uploaded
        last = max(last, item.uploaded)
    return last


@inlined
def upload_at(sim: Any, time: float, upload_s: float, call: int) -> float:
    """Upload an expert that a call waits for, and that is there from `time` on; returns the end."""
    while True:
        begin = max(sim.state[0].link_free, time)
        read_before(sim, begin)
        if not upload_one_before(sim, begin):
            end: float = use_link(sim, begin, upload_s, IS_UPLOAD, call)
            return end
