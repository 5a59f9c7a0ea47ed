"""The speed of a replay on a machine: the public face of stage 2."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import Conflict
from flashmoe_sim.machines.belief import ANY_ENGINE, Draws, Whose, ends, learnt_times
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.residency.replay import Replayed
from flashmoe_sim.residency.workload import Setup, Workload
from flashmoe_sim.timeline.assemble import Conditions, Weights, page_cache_bytes, priced, weights_of, work_of
from flashmoe_sim.timeline.models.base import ExecutionModel
from flashmoe_sim.timeline.models.table import parse_execution
from flashmoe_sim.timeline.run import Timeline, by_kind, parts_of, simulate, total_seconds
from flashmoe_sim.timeline.timing import Speeds, Timing, speed_draws, speeds_of, timing_of
from flashmoe_sim.timeline.work import Costs, Work

_LAST: WeakKeyDictionary[Work, tuple[tuple[ExecutionModel, bytes], Timeline, Timing]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Timed:
    """A replay in seconds.

    work: of every routed call. timed_work: what is simulated of it, with parts of misses as more calls. recorded:
        whether spans are kept.
    draw: gives `draws` of the logarithm of the speed over timing.tok_s, see `machines.belief`; None if there are none.
    storage_bytes, page_cache_bytes: read from each tier, including reads ahead, but not experts used in place. Page
        faults also read what is around an expert, and dense weights that did not stay in RAM.
    """

    work: Work
    timed_work: Work
    costs: Costs
    execution: ExecutionModel
    recorded: bool
    storage_bytes: int
    page_cache_bytes: int
    draw: Callable[[Timing], Draws] | None

    @cached_property
    def timeline(self) -> Timeline:
        return self._ran[0]

    @cached_property
    def timing(self) -> Timing:
        return self._ran[1]

    @cached_property
    def draws(self) -> Draws | None:
        return None if self.draw is None or self.timing.tok_s is None else self.draw(self.timing)

    @cached_property
    def _ran(self) -> tuple[Timeline, Timing]:
        return _run(self.timed_work, self.costs, self.execution, record=self.recorded)

    @cached_property
    def speeds(self) -> Speeds:
        """The speeds of `timing`, and the time by part, without a run of every call if kinds of calls say them.

        They differ from those of `timing` by rounding.
        """
        if by_kind(self.timed_work, self.execution):
            return speeds_of(self.timed_work.timed_kinds, lambda each: parts_of(each, self.costs, self.execution))
        timing = self.timing
        return Speeds(timing.tok_s, timing.prompt_tok_s, timing.part_ms_per_token)

    @property
    def tok_s_lo(self) -> float | None:
        return self._ends[0]

    @property
    def tok_s_hi(self) -> float | None:
        return self._ends[1]

    @property
    def _ends(self) -> tuple[float | None, float | None]:
        tok_s = self.timing.tok_s
        return (None, None) if self.draws is None or tok_s is None else ends(tok_s, self.draws)

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
    replay: Replayed,
    machine: Machine,
    conditions: Conditions,
    *,
    interval: bool = True,
    whose: Whose | None = ANY_ENGINE,
    record: bool = False,
    must_fit: bool = True,
) -> Timed:
    """Run a recorded replay on a machine; one replay serves any number of machines.

    interval: also compute `draws`, from the last 512 steps. whose: the engine, whose error counts.
    record: keep every resource's spans.
    must_fit: whether the experts of `resident` must fit in memory; for a ceiling they need not.
    Raises BadInput if the model does not fit the machine, the machine lacks what the execution model needs, or a policy
    keeps a bank that the execution model does not have.
    """
    setup, execution = replay.setup, conditions.execution
    if setup.policy.has_bank and not execution.has_bank:
        raise Conflict(
            f"policy {setup.policy.spec}: keeps experts in a bank, but {execution.name} has no bank; "
            "use --policy demand, or another --execution"
        )
    warm_bytes = page_cache_bytes(workload, setup, replay, machine, conditions) if must_fit else 0
    loaded = execution.in_place or execution.from_ram
    work = execution.computed(work_of(workload, replay, page_cache_bytes=warm_bytes, loaded=loaded))
    weights = weights_of(workload, conditions)
    smaller = SmallerReads.of(work, replay, layers=len(weights.layers))

    assert workload.expert_bytes is not None
    size = np.array(workload.expert_bytes, np.int64)
    beside = _dense_beside(work, weights, machine, execution, page_cache_bytes=warm_bytes)

    def costs_on(other: Machine) -> Costs:
        def at(read_share: float) -> Costs:
            return priced(weights, setup, other, conditions, read_share=read_share)

        found = at(1.0) if smaller is None else smaller.costs(at)
        return found if beside is None else replace(found, chunk_s=found.chunk_s * (1 + beside)[:, np.newaxis])

    costs, timed = costs_on(machine).slower(1 / learnt_times(machine, whose)), smaller.work if smaller else work
    if smaller is None:
        missed, warm = (int(of_row @ size[: len(of_row)]) for of_row in work.missed)
    else:
        of_call = size[work.row] * smaller.read_share
        missed, warm = int(work.misses @ of_call), int(work.warm @ of_call)
    ahead = size[work.ahead_row]
    warm += int(ahead[work.ahead_warm != 0].sum())
    stored = missed + int(ahead.sum()) - warm
    if machine.storage.by_faults and smaller is None:
        cold = np.bincount(work.row, work.misses - work.warm, len(size))
        read_bytes = cold * (size + _around_bytes(weights, machine))
        stored = int(np.sum(read_bytes if beside is None else read_bytes * (1 + beside)))
    from_pages = execution.reads and not execution.in_place

    def draw(timing: Timing) -> Draws:
        return draws_of(timed, timing, machine, execution, costs_on, whose=whose)

    return Timed(
        work,
        timed,
        costs,
        execution,
        record,
        execution.reads * stored,
        from_pages * warm,
        draw if interval else None,
    )


def _dense_beside(
    work: Work, weights: Weights, machine: Machine, execution: ExecutionModel, *, page_cache_bytes: int
) -> NDArray[np.float64] | None:
    """Bytes of dense weights that are read over those of the experts, in each row of the costs; None if none are.

    A mapped model's dense weights stay in RAM as long as it holds the experts of a token beside them, since each token
    touches them: with less, least recently used pages leave before they are touched again, and all are read each time.
    """
    if not execution.in_place or machine.gpu is not None:
        return None
    experts = np.array([layer.expert_bytes for layer in weights.layers])
    misses, steps = np.bincount(work.row, work.misses, len(experts)), len(np.unique(work.step))
    if page_cache_bytes * steps >= misses @ experts:
        return None
    dense_bytes = np.array(weights.dense_bytes or (0.0,) * len(experts))
    return dense_bytes * steps / np.maximum(misses * (experts + _around_bytes(weights, machine)), 1)


def _around_bytes(weights: Weights, machine: Machine) -> NDArray[np.int64]:
    """What page faults read around the pieces of an expert, in each row of the costs."""
    around = machine.storage.around_bytes
    return np.array([sum(map(around, layer.family_bytes.values())) for layer in weights.layers], np.int64)


def _run(work: Work, costs: Costs, execution: ExecutionModel, *, record: bool) -> tuple[Timeline, Timing]:
    """The timeline and its summary; those of the last run of this work are kept for a run at equal costs."""
    key = execution, costs.content
    if not record and work in _LAST and _LAST[work][0] == key:
        return _LAST[work][1:]
    timeline = simulate(work, costs, execution, record=record)
    timing = timing_of(timeline, work)
    if not record:
        _LAST[work] = key, timeline, timing
    return timeline, timing


def draws_of(
    work: Work,
    timing: Timing,
    machine: Machine,
    execution: ExecutionModel,
    costs_on: Callable[[Machine], Costs],
    *,
    whose: Whose | None = ANY_ENGINE,
) -> Draws:
    """Draws of the logarithm of the speed over timing.tok_s, from the last 512 decoded steps.

    costs_on: what the work costs on a machine. whose: as in `time_replay`.
    """

    def speed_on(other: Machine) -> float:
        return 1 / float(total_seconds(work.last_decoded, costs_on(other), execution))

    return speed_draws(speed_on, machine, timing.decode_step_s, whose=whose)


_PARTS = 840  # of a call's misses; whole numbers of up to eight misses
_OF_READS = (
    *("cold_expert_s", "chunk_s", "warm_chunk_s", "fill_s", "upload_s", "memory_s"),
    *("family_chunk_s", "family_warm_chunk_s", "family_fill_s", "family_upload_s"),
)
_OF_ROWS = (*_OF_READS, "dense_s", "expert_s", "chunks", "family_chunks")


@dataclass(frozen=True, eq=False)
class SmallerReads:
    """Work in which some misses read a share of an expert's bytes; each share of such misses has its own rows of costs.

    All misses of a call take as long as its whole and its smaller reads do in the mean. The page cache keeps experts
    whole, and a resident expert takes as long to compute as one that was read whole.

    work: the same work, its rows grouped by the share of such misses; the rows of calls without any come first.
    minor: f64 [shares], that share, ascending from 0. read_share: f64 [calls], the part of its misses' bytes that a
    call reads. of_minor: the part of an expert's bytes that such a miss reads.
    """

    work: Work
    minor: NDArray[np.float64]
    read_share: NDArray[np.float64]
    of_minor: float

    @classmethod
    def of(cls, work: Work, replay: Replayed, *, layers: int) -> Self | None:
        """None if all misses read all bytes."""
        rule, stream = replay.setup.policy.minor_rule, replay.stream
        if rule is None or not rule.reads:
            return None
        assert stream is not None
        parts = np.rint(_PARTS * stream.minor / np.maximum(work.misses, 1)).astype(np.int64)
        shares, place = np.unique(np.append(0, parts), return_inverse=True)
        row = (work.row + layers * place[1:]).astype(np.int32)
        read_share = 1 - (1 - rule.read_share) * parts / _PARTS
        return cls(replace(work, row=row), shares / _PARTS, read_share, rule.read_share)

    def costs(self, at: Callable[[float], Costs]) -> Costs:
        """The costs of the rows. at: the costs of layers whose misses read this share of their bytes."""
        whole, small = at(1.0), at(self.of_minor)

        def rows(name: str) -> NDArray[Any]:
            of_whole, of_small = getattr(whole, name), getattr(small, name)
            if name not in _OF_READS:
                return np.concatenate([of_whole] * len(self.minor))
            return np.concatenate([(1 - share) * of_whole + share * of_small for share in self.minor])

        values: dict[str, Any] = {name: rows(name) for name in _OF_ROWS}
        return replace(whole, **values)
