"""Seconds of every routed call: the public face of stage 2."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import SimError
from flashmoe_sim.timeline.kernel import loop_of
from flashmoe_sim.timeline.models.base import ExecutionModel
from flashmoe_sim.timeline.names import N_PARTS, ON_STORAGE, OUTPUT, RESOURCES
from flashmoe_sim.timeline.state import Simulation, new_simulation
from flashmoe_sim.timeline.work import OF_READS_AHEAD, Costs, Kinds, Work

_SECONDS: WeakKeyDictionary[Work, dict[tuple[ExecutionModel, bytes], float]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Timeline:
    """When every routed call ended, and where the time went.

    end: f64 [calls], seconds since the start, including what follows a call before the next one begins: reads ahead
        that it must wait for, and the output after the last call of a step.
    parts: f64 [calls, N_PARTS], seconds by names.PARTS; a call's parts add up to the time since the previous end.
    busy: f64 [N_RESOURCES], seconds by names.RESOURCES within the run; for the storage, the mean over its lanes.
    spans: what each resource did, state.SPAN [spans], if it was recorded.
    """

    end: NDArray[np.float64]
    parts: NDArray[np.float64]
    busy: NDArray[np.float64]
    spans: NDArray[np.void] | None = None

    @property
    def total_s(self) -> float:
        return float(self.end[-1]) if len(self.end) else 0.0


def simulate(work: Work, costs: Costs, execution: ExecutionModel, *, record: bool = False) -> Timeline:
    """Run `work` at these `costs`, in the order of `execution`.

    record: keep the spans of every resource, for the timeline file.
    Raises ValueError if work and costs do not fit together, SimError if the books do not balance.
    """
    _check_work(work, costs)
    timeline = _simulated(work, costs, execution, record=record)
    _check_timeline(timeline, execution)
    return timeline


def _simulated(work: Work, costs: Costs, execution: ExecutionModel, *, record: bool) -> Timeline:
    if not execution.reads_ahead and len(work.ahead_after):
        work = replace(work, **{name: getattr(work, name)[:0] for name in OF_READS_AHEAD})
    room = 0
    if record:  # first only count: how often lanes and uploads are used is known at the end
        sim = new_simulation(work, costs, by_family=execution.by_family, room=0, recording=True)
        _run(sim, work, costs, execution)
        room = int(sim.state["spans"][0])
    sim = new_simulation(work, costs, by_family=execution.by_family, room=room, recording=record)
    end, parts = _run(sim, work, costs, execution)
    busy = sim.busy.copy()
    busy[ON_STORAGE] /= len(sim.lane_free)
    return Timeline(end, parts, busy, sim.spans if record else None)


def total_seconds(work: Work, costs: Costs, execution: ExecutionModel) -> float:
    """The seconds of a whole run; one that was simulated before, at equal costs, is not simulated again.

    A call waits for all of its own work, so that equal calls take equally long: if nothing is read ahead, each kind of
    call is simulated once.
    Neither the costs nor the books are checked, which takes half of the time: `simulate` checks a run of the same work.
    """
    known = _SECONDS.setdefault(work, {})
    key = execution, costs.content
    if key not in known:
        if by_kind(work, execution):
            known[key] = float(parts_of(work.kinds, costs, execution).sum())
        else:
            known[key] = _simulated(work, costs, execution, record=False).total_s
    return known[key]


def by_kind(work: Work, execution: ExecutionModel) -> bool:
    """Whether some work can be timed by the kinds of its calls, and need not be run call by call."""
    return work.calls_are_alone and type(execution).serve is ExecutionModel.serve


def parts_of(kinds: Kinds, costs: Costs, execution: ExecutionModel) -> NDArray[np.float64]:
    """The seconds of all calls of these kinds by names.PARTS, f64 [N_PARTS]."""
    parts = _simulated(kinds.work, costs, execution, record=False).parts
    parts[:, OUTPUT] = 0.0
    total: NDArray[np.float64] = kinds.calls @ parts
    total[OUTPUT] = kinds.steps * costs.step_s + kinds.drafted * costs.draft_s
    return total


class _CallColumns(NamedTuple):
    """The columns of `Work` that the loop reads."""

    row: NDArray[np.int32]
    step: NDArray[np.int32]
    n_tokens: NDArray[np.int32]
    drafted: NDArray[np.int32]
    refs: NDArray[np.int32]
    requests: NDArray[np.int32]
    misses: NDArray[np.int32]
    warm: NDArray[np.int32]
    cold: NDArray[np.int32]
    installs: NDArray[np.int32]


class _Knees(NamedTuple):
    """The largest batches that take no longer than a token, and from which call on arithmetic is added; see `Costs`."""

    dense_knee_tokens: float
    knee_tokens: float
    cold_knee_tokens: float
    added_from: int
    padded_tokens: float


def _run(
    sim: Simulation, work: Work, costs: Costs, execution: ExecutionModel
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    calls = len(work.row)
    end, parts = np.zeros(calls), np.zeros((calls, N_PARTS))
    waited = {} if execution.waits_for_installs else {"installs": np.zeros_like(work.installs)}
    loop_of(type(execution).serve)(  # the class's: an instance would bind its kernel again each time
        sim,
        _CallColumns(*(_column(waited.get(name, getattr(work, name))) for name in _CallColumns._fields)),
        execution.steps,
        _Knees(
            float(costs.dense_knee_tokens),
            float(costs.knee_tokens),
            float(costs.cold_knee_tokens),
            costs.added_from,
            float(costs.padded_tokens),
        ),
        end,
        parts,
    )
    return end, parts


def _column(values: NDArray[np.integer]) -> NDArray[np.int32]:
    """A column that cannot be written, as a trace's own columns cannot: for each mixture a loop would compile again."""
    column: NDArray[np.int32] = np.ascontiguousarray(values, np.int32).view()
    column.flags.writeable = False
    return column


def _check_work(work: Work, costs: Costs) -> None:
    rules = {
        "rows are in the costs": not len(work.row) or (work.row.min() >= 0 and work.row.max() < len(costs.dense_s)),
        "an expert has a read, and a machine a lane": bool((costs.chunks > 0).all()) and costs.chunk_s.shape[1] > 0,
        "the reads of an expert are those of its families": bool(
            (costs.family_chunks.sum(axis=1) == costs.chunks).all()
        ),
        "costs are not negative": all(_least(getattr(costs, item.name)) >= 0 for item in fields(costs))
        and min(costs.dense_knee_tokens, costs.knee_tokens, costs.cold_knee_tokens) > 0,
    }
    broken = work.broken_rule or next((rule for rule, kept in rules.items() if not kept), "")
    if broken:
        raise ValueError(f"work and costs of a timeline: expected that {broken}")


def _least(value: float | NDArray[Any]) -> float:
    """The number; of an array the smallest, or 0 if none is negative; nan if any is."""
    return value.min(initial=0) if isinstance(value, np.ndarray) else value


def _check_timeline(timeline: Timeline, execution: ExecutionModel) -> None:
    wall = timeline.end.copy()
    wall[1:] -= timeline.end[:-1]
    sums = np.einsum("ij->i", timeline.parts)  # four times as fast as a sum over the short axis
    off = sums - wall
    np.abs(off, out=off)
    if not (off <= 1e-9 * wall).all():
        call = int(np.argmin(off <= 1e-9 * wall))
        raise SimError(
            f"timeline of {execution.name}: the parts of routed call {call} add up to "
            f"{sums[call]} s, expected {wall[call]} s"
        )
    for name, busy in zip(RESOURCES, timeline.busy, strict=True):
        if not busy <= timeline.total_s * (1 + 1e-9):
            raise SimError(f"timeline of {execution.name}: {name} is busy {busy} s of {timeline.total_s} s")
