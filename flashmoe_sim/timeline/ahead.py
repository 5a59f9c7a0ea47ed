"""What happens to experts read ahead after a call: an execution model's `after`, see models/base.py.

Experts that the next call must wait for are read as one batch right after their call, over all lanes even if misses are
read one after another. The output of a step follows them.
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
    """They are read and uploaded during the calls that follow."""
    issue(sim, number, time, False)
    return time


@inlined
def upload_beside(sim: Any, number: int, time: float) -> float:
    """Like `read_beside`, but experts in RAM are uploaded directly, without a read."""
    issue(sim, number, time, True)
    return time
