"""The speed of a replay on a machine: the public face of stage 2."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.residency.replay import Replay
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.timeline.assemble import Conditions, costs_of, page_cache_bytes, work_of
from flashmoe_sim.timeline.costs import Costs
from flashmoe_sim.timeline.interval import speed_interval
from flashmoe_sim.timeline.models.base import ExecutionModel
from flashmoe_sim.timeline.models.table import parse_execution
from flashmoe_sim.timeline.run import Timeline, simulate
from flashmoe_sim.timeline.timing import Timing, timing_of
from flashmoe_sim.timeline.work import Work, decoded, some_calls

INTERVAL_STEPS = 512


@dataclass(frozen=True, eq=False)
class Timed:
    """A replay in seconds.

    tok_s_lo, tok_s_hi: the 90 % interval of timing.tok_s; None if it was not requested.
    storage_bytes, page_cache_bytes: read from each tier, including reads ahead, but not experts used in place.
    """

    timing: Timing
    timeline: Timeline
    work: Work
    costs: Costs
    tok_s_lo: float | None
    tok_s_hi: float | None
    storage_bytes: int
    page_cache_bytes: int

    def as_json(self) -> dict[str, Any]:
        """`timing` of `sim replay --json`."""
        return {
            **self.timing.as_json(),
            "tok_s_lo": self.tok_s_lo,
            "tok_s_hi": self.tok_s_hi,
            "bytes_by_tier": {"storage": self.storage_bytes, "page_cache": self.page_cache_bytes},
        }


def default_execution(setup: Setup) -> ExecutionModel:
    """The execution model of the engine that uses this policy."""
    return parse_execution(setup.policy.execution)


def time_replay(
    workload: Workload,
    setup: Setup,
    replay: Replay,
    machine: Machine,
    conditions: Conditions,
    *,
    interval: bool = True,
    record: bool = False,
    must_fit: bool = True,
) -> Timed:
    """Run a recorded replay on a machine; one replay serves any number of machines.

    interval: also compute the interval of the speed, from the last 512 steps. record: keep every resource's spans.
    must_fit: whether the experts of `resident` must fit in memory; for a ceiling they need not.
    Raises BadInput if the model does not fit the machine, the machine lacks what the execution model needs, or a policy
    keeps a bank that the execution model does not have.
    """
    execution = conditions.execution
    if setup.policy.has_bank and not execution.has_bank:
        raise BadInput(
            f"policy {setup.policy.spec}: keeps experts in a bank, but {execution.name} has no bank; "
            "use --policy demand, or another --execution"
        )
    warm_bytes = page_cache_bytes(workload, setup, replay, machine, conditions) if must_fit else 0
    loaded = execution.in_place or execution.from_ram
    work = work_of(workload, replay, page_cache_bytes=warm_bytes, loaded=loaded)
    costs = costs_of(workload, setup, machine, conditions)
    timeline = simulate(work, costs, conditions.execution, record=record)
    timing = timing_of(timeline, work)
    lo, hi = None, None
    if interval and timing.tok_s is not None:
        lo, hi = interval_of(
            work,
            timing,
            machine,
            conditions.execution,
            lambda other: costs_of(workload, setup, other, conditions),
        )
    assert workload.expert_bytes is not None
    size = np.array(workload.expert_bytes, np.int64)
    ahead = size[work.ahead_row]
    warm = int(work.warm @ size[work.row]) + int(ahead[work.ahead_warm != 0].sum())
    stored = int(work.misses @ size[work.row]) + int(ahead.sum()) - warm
    from_pages = execution.reads and not execution.in_place
    return Timed(timing, timeline, work, costs, lo, hi, execution.reads * stored, from_pages * warm)


def interval_of(
    work: Work, timing: Timing, machine: Machine, execution: ExecutionModel, price: Callable[[Machine], Costs]
) -> tuple[float, float]:
    """The 90 % interval of timing.tok_s, from the last 512 decoded steps; price: what the work costs on a machine."""
    assert timing.tok_s is not None
    some = last_steps(decoded(work), INTERVAL_STEPS)

    def speed_on(other: Machine) -> float:
        return 1 / simulate(some, price(other), execution).total_s

    return speed_interval(timing.tok_s, speed_on, machine, timing.decode_step_s)


def last_steps(work: Work, steps: int) -> Work:
    """The last `steps` steps, with what was read ahead in them."""
    return some_calls(work, work.step >= np.unique(work.step)[-steps:][0])
