"""What happens to experts that are read ahead after a call.

Experts that the next call must wait for are read as one batch right after their call, over all lanes even if misses are
read one after another, or one tensor family after another if misses are. The output of a step follows them.
"""

from __future__ import annotations

from typing import Any

from flashmoe_sim._jit import inlined
from flashmoe_sim.timeline.background import issue, use_link
from flashmoe_sim.timeline.names import EVERYTHING, IS_READ_AHEAD, IS_UPLOAD_AHEAD, NOTHING
from flashmoe_sim.timeline.storage import earliest_lane, read_family, read_on


@inlined
def read_ahead(sim: Any, steps: Any, number: int, time: float) -> float:
    """Read ahead the experts that were issued after a call; return the time when the next call may begin."""
    first, clock = sim.state[0].issued, time
    issue(sim, number, time, steps.in_place)
    if steps.in_background:
        return time
    sim.state[0].read = sim.state[0].issued
    for i in range(first, sim.state[0].issued):
        expert = sim.ahead[i]
        if steps.by_family:
            for f in range(sim.families.shape[1]):
                warm, fills = expert.warm != 0, expert.cold != 0
                clock = read_family(sim, expert.row, f, warm, fills, clock, IS_READ_AHEAD, number)
                clock = upload_ahead(sim, clock, sim.families[expert.row, f].upload_s, number)
        else:
            for _ in range(sim.rows[expert.row].chunks):
                read = read_on(sim, earliest_lane(sim, time), time, expert.service_s, IS_READ_AHEAD, number)
                clock = max(clock, read)
    if not steps.by_family and steps.uploads not in (NOTHING, EVERYTHING):
        for i in range(first, sim.state[0].issued):
            clock = upload_ahead(sim, clock, sim.rows[sim.ahead[i].row].upload_s, number)
    return clock


@inlined
def upload_ahead(sim: Any, begin: float, upload_s: float, number: int) -> float:
    if upload_s == 0.0:
        return begin
    end: float = use_link(sim, begin, begin + upload_s, IS_UPLOAD_AHEAD, number)
    return end
