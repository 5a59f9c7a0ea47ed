"""What becomes of experts read ahead after a call, as `after` of an execution model: see models/base.py.

What the next call must wait for is read as one batch right after its call, over all lanes even if misses are read
one after another. The output of a step follows it.
"""

from __future__ import annotations

from typing import Any

from flashmoe_sim._jit import inlined
from flashmoe_sim.timeline.background import issue, use_link
from flashmoe_sim.timeline.names import IS_READ_AHEAD, IS_UPLOAD_AHEAD
from flashmoe_sim.timeline.storage import earliest_lane, read_on


@inlined
def only_read(sim: Any, number: int, time: float) -> float:
    """The next call waits until they have been read."""
    first = sim.state[0].issued
    issue(sim, number, time, False)
    clock = time
    for i in range(first, sim.state[0].issued):
        expert = sim.ahead[i]
        for _ in range(sim.rows[expert.row].chunks):
            read = read_on(sim, earliest_lane(sim, time), time, expert.service_s, IS_READ_AHEAD, number)
            clock = max(clock, read)
    sim.state[0].read = sim.state[0].issued
    return clock


@inlined
def read_and_upload(sim: Any, number: int, time: float) -> float:
    """The next call waits until they have been read, and then uploaded one after another."""
    first = sim.state[0].issued
    clock: float = only_read(sim, number, time)
    for i in range(first, sim.state[0].issued):
        upload_s = sim.rows[sim.ahead[i].row].upload_s
        if upload_s > 0.0:
            clock = use_link(sim, clock, clock + upload_s, IS_UPLOAD_AHEAD, number)
    return clock


@inlined
def read_beside(sim: Any, number: int, time: float) -> float:
    """They are read and uploaded beside the calls that follow."""
    issue(sim, number, time, False)
    return time


@inlined
def upload_beside(sim: Any, number: int, time: float) -> float:
    """As `read_beside`, but what RAM holds is uploaded from where it lies, without a read."""
    issue(sim, number, time, True)
    return time
