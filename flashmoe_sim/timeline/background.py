"""Reads and uploads ahead of need: storage and link work on them while no call waits for either.

What a call waits for interrupts what runs in the background, which resumes later. So a faster part never makes a call
wait longer. Experts are read one after another, and uploaded one after another, in the order in which they were issued.
Everything here is evaluated as late as possible: what happens before a moment is computed only once something else
happens at that moment.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flashmoe_sim._jit import inlined
from flashmoe_sim.timeline.names import IS_READ_AHEAD, IS_UPLOAD, IS_UPLOAD_AHEAD, ON_LINK, ON_STORAGE
from flashmoe_sim.timeline.state import note, sort_items
from flashmoe_sim.timeline.storage import depth_of, rounds_of


@inlined
def issue(sim: Any, call: int, time: float, in_place: bool) -> None:
    """Enter the experts issued after `call` into the queues at `time`, as one batch in the order they have.

    The batch takes as long as one that a call waits for, and each expert its share of that time.
    in_place: experts in RAM are uploaded directly, without a read.
    """
    state, lanes = sim.state[0], len(sim.lane_free)
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
    for i in range(begin, end):
        expert, costs = sim.ahead[i], sim.rows[sim.ahead[i].row]
        together = warm if expert.warm else cold
        expert.issued = time
        expert.depth = depth_of(together, lanes)
        expert.service_s = sim.read_s[expert.warm, expert.row, expert.depth - 1]
        if expert.cold:
            expert.service_s += costs.fill_s
        expert.read_left = expert.service_s * rounds_of(together, lanes) * (costs.chunks / together)
        expert.upload_left = costs.upload_s
        if in_place and expert.warm:
            expert.read_left = 0.0


@inlined
def arrived(sim: Any, i: int, time: float) -> None:
    """All of expert `i` has been read at `time`; it is usable then if it needs no upload."""
    sim.ahead[i].arrived = time
    if sim.ahead[i].upload_left == 0.0:
        sim.ahead[i].usable = time


@inlined
def keep_reading(sim: Any, i: int, begin: float, end: float) -> None:
    """Storage reads expert `i` from `begin` to `end`."""
    expert = sim.ahead[i]
    sim.busy[ON_STORAGE] += expert.depth * (end - begin)
    sim.state[0].storage_free = end
    for lane in range(expert.depth):
        note(sim, ON_STORAGE, lane, IS_READ_AHEAD, expert.after, begin, end)


@inlined
def read_before(sim: Any, until: float, breaking_off: bool) -> None:
    """Do the background reads until then; if `breaking_off`, interrupt the one under way."""
    state = sim.state[0]
    while state.read < state.issued:
        expert = sim.ahead[state.read]
        if not expert.claimed and expert.arrived == np.inf:
            begin = max(state.storage_free, expert.issued)
            if begin >= until:
                return
            end = begin + expert.read_left
            if end > until:
                if breaking_off:
                    expert.read_left -= until - begin
                    keep_reading(sim, state.read, begin, until)
                return
            keep_reading(sim, state.read, begin, end)
            expert.read_left = 0.0
            arrived(sim, state.read, end)
        state.read += 1


@inlined
def upload_before(sim: Any, until: float, breaking_off: bool) -> None:
    """Do the background uploads until then; if `breaking_off`, interrupt the one under way."""
    state = sim.state[0]
    while state.uploaded < state.read:
        expert = sim.ahead[state.uploaded]
        if not expert.claimed and expert.upload_left > 0.0:
            begin = max(state.link_free, expert.arrived)
            if begin >= until:
                return
            end = begin + expert.upload_left
            if end > until:
                if breaking_off:
                    expert.upload_left -= until - begin
                    use_link(sim, begin, until, IS_UPLOAD_AHEAD, expert.after)
                return
            expert.usable = use_link(sim, begin, end, IS_UPLOAD_AHEAD, expert.after)
            expert.upload_left = 0.0
        state.uploaded += 1


@inlined
def use_link(sim: Any, begin: float, end: float, kind: int, call: int) -> float:
    """Upload from `begin` to `end`; return the end."""
    sim.busy[ON_LINK] += end - begin
    note(sim, ON_LINK, 0, kind, call, begin, end)
    sim.state[0].link_free = end
    return end


@inlined
def claim(sim: Any, call: int, time: float, reads: bool) -> int:
    """Find the experts read ahead that `call` uses and that are not usable by `time`, items 0, 1, …; return how many.

    The rest of their reads goes before all others, one after another. An item is due when its upload can start, never
    before `time`. reads: whether the call itself then reads.
    """
    read_before(sim, time, reads)
    upload_before(sim, time, False)
    state = sim.state[0]
    late = 0
    while state.used < len(sim.use) and sim.use[state.used] == call:
        i = sim.by_use[state.used]
        state.used += 1
        expert = sim.ahead[i]
        if expert.usable <= time:
            continue
        if expert.arrived == np.inf:
            read_before(sim, time, True)
        elif i == state.uploaded:
            upload_before(sim, time, True)
        expert.claimed = 1
        if expert.arrived == np.inf:
            begin = max(state.storage_free, time)
            keep_reading(sim, i, begin, begin + expert.read_left)
            expert.arrived = state.storage_free
        sim.items[late].ahead = i
        sim.items[late].due = max(time, expert.arrived)
        late += 1
    return late


@inlined
def upload_now(sim: Any, time: float, seconds: float, call: int) -> float:
    """Upload something that a call waits for and that is available from `time` on; return the end."""
    begin = max(sim.state[0].link_free, time)
    read_before(sim, begin, False)
    upload_before(sim, begin, True)
    end: float = use_link(sim, begin, begin + seconds, IS_UPLOAD, call)
    return end


@inlined
def upload_items(sim: Any, n: int, upload_s: float, call: int) -> float:
    """Upload the first `n` items in the order of their arrival; return when the last is done, -inf if n is 0."""
    sort_items(sim, n)
    last = -np.inf
    for k in range(n):
        item = sim.items[sim.order[k]]
        left = sim.ahead[item.ahead].upload_left if item.ahead >= 0 else upload_s
        if left > 0.0:
            item.due = upload_now(sim, item.due, left, call)
        item.uploaded = item.due
        last = max(last, item.uploaded)
    return last
