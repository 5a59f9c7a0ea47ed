"""What predictors cost and save in a bank, and how accurate one must be to pay off."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from flashmoe_sim.ceilings.larger import smallest
from flashmoe_sim.io.errors import OutOfRange
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.prefetchers.base import Prefetcher, default_width
from flashmoe_sim.prefetchers.none import NoPrefetch
from flashmoe_sim.prefetchers.synthetic import Synthetic
from flashmoe_sim.residency import tally
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.workload import Setup, Workload
from flashmoe_sim.timeline.assemble import Conditions
from flashmoe_sim.timeline.from_replay import Timed, time_replay
from flashmoe_sim.timeline.names import LATE
from flashmoe_sim.trace.routing import PHASE_PROMPT

RECALLS = (0.25, 0.5, 0.75, 1.0)

T = TypeVar("T")
R = TypeVar("R")
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class AheadValue:
    """One predictor in one bank.

    prefetch: the predictor with its parameters. hindsight: whether it predicts from the future.
    precision, recall: of its predictions, whatever the bank; None if it made none.
    read_ahead: experts read ahead. useful: how many of them were hit before they were evicted; late: how many of the
        useful ones were requested by the very next routed call. wasted: how many were evicted unused, or unused at the
        end.
    misses: demand misses. saved: how many fewer than without a predictor.
    tokens: of the workload. bytes_read: by demand reads and prefetches together; None if no geometry is known.
    tok_s, tok_s_lo, tok_s_hi: the speed and its 90% interval; None without a machine.
    late_layers: the layers in which most decoded calls that use experts read ahead wait for one of them; None without
        a machine.
    """

    prefetch: str
    hindsight: bool
    precision: float | None
    recall: float | None
    read_ahead: int
    useful: int
    late: int
    wasted: int
    misses: int
    saved: int
    tokens: int
    bytes_read: int | None
    tok_s: float | None = None
    tok_s_lo: float | None = None
    tok_s_hi: float | None = None
    late_layers: tuple[int, ...] | None = None

    @property
    def worth(self) -> float | None:
        """Demand misses saved per expert read ahead; None if none was."""
        return self.saved / self.read_ahead if self.read_ahead else None

    def pays(self, price: float) -> bool:
        """Whether it pays off if an expert read ahead costs `price` of a demand miss."""
        return self.saved >= price * self.read_ahead


@dataclass(frozen=True)
class BreakEven:
    """The value of predictors of chosen quality that name experts one step ahead.

    extras: wrong experts named per call. grid: for each of them, one value per entry of RECALLS.
    needed: for each of them, the least recall, in steps of 0.01, that pays off at `price`; None if no value of the grid
        does.
    """

    price: float
    extras: tuple[int, ...]
    grid: tuple[tuple[AheadValue, ...], ...]
    needed: tuple[float | None, ...]


def ahead_values(
    workload: Workload,
    setup: Setup,
    prefetchers: Sequence[Prefetcher],
    *,
    machine: Machine | None = None,
    conditions: Conditions | None = None,
    progress: Progress | None = None,
) -> list[AheadValue]:
    """What each predictor costs and saves in the bank of `setup`, whose own predictor is ignored.

    machine, conditions: where and how it is timed; None to count only.
    progress: called with the number of predictors done and the total.
    Raises BadInput for an impossible predictor or bank.
    """
    judged = _judged(workload, setup, prefetchers, machine, conditions)
    return _in_threads(judged, prefetchers, progress)


def break_even(workload: Workload, setup: Setup, *, price: float, progress: Progress | None = None) -> BreakEven:
    """How accurate a predictor must be to pay off in the bank of `setup`, by the number of wrong experts it names.

    The numbers of wrong experts are 0, 1/4, 1/2, 1 and 2 times the experts per token. All recalls share the same draws,
    so that the experts named at a higher recall include those at a lower one.
    price: the cost of an expert read ahead, as a share of a demand miss.
    progress: called with the number of rows of the grid done and the total.
    Raises BadInput for a price below 0, and whenever `ahead_values` does.
    """
    if not price >= 0:
        raise OutOfRange(f"price {price}: expected 0 or more, what a read ahead costs as a share of one that stalls")
    judged = _judged(workload, setup, [Synthetic()])
    width = default_width(workload.trace)
    extras = tuple(dict.fromkeys((0, *(max(width * quarters // 4, 1) for quarters in (1, 2, 4, 8)))))

    def row(extra: int) -> tuple[tuple[AheadValue, ...], float | None]:
        values = tuple(judged(Synthetic(recall, extra)) for recall in RECALLS)
        paying = [value.pays(price) for value in values]
        if not any(paying):
            return values, None
        # Between the last recall that does not pay off and the first that does, in per cent.
        bounds = [1, *(round(100 * recall) for recall in RECALLS)]
        low, high = bounds[paying.index(True) : paying.index(True) + 2]
        more = smallest(lambda more: judged(Synthetic((low + more) / 100, extra)).pays(price), high - low)
        assert more is not None, "the upper bound pays"
        return values, (low + more) / 100

    grid, needed = zip(*_in_threads(row, extras, progress), strict=True)
    return BreakEven(price, extras, grid, needed)


def _judged(
    workload: Workload,
    setup: Setup,
    prefetchers: Sequence[Prefetcher],
    machine: Machine | None = None,
    conditions: Conditions | None = None,
) -> Callable[[Prefetcher], AheadValue]:
    """A function of one predictor; raises BadInput first if any of these is impossible."""
    for prefetcher in prefetchers:
        replace(setup, prefetch=prefetcher)
    without = replay(workload, replace(setup, prefetch=NoPrefetch())).counts.total()["misses"]

    def judged(prefetcher: Prefetcher) -> AheadValue:
        replayed = replay(workload, replace(setup, prefetch=prefetcher), record=machine is not None)
        counts, timed = replayed.counts, None
        if machine is not None and conditions is not None:
            timed = time_replay(workload, replayed, machine, conditions)
        workload.forget_ahead(prefetcher, setup.scope)
        total = counts.total()
        demand_bytes, ahead_bytes = total["bytes_read"], total["prefetch_bytes"]
        return AheadValue(
            prefetch=prefetcher.spec,
            hindsight=prefetcher.hindsight,
            precision=total["prefetch_precision"],
            recall=total["prefetch_recall"],
            read_ahead=total["prefetch_issued"],
            useful=total["prefetch_useful"],
            late=total["prefetch_late"],
            wasted=int(counts.table[:, tally.PREFETCH_WASTED].sum()),
            misses=total["misses"],
            saved=without - total["misses"],
            tokens=counts.tokens,
            bytes_read=None if demand_bytes is None else demand_bytes + ahead_bytes,
            tok_s=None if timed is None else timed.timing.tok_s,
            tok_s_lo=None if timed is None else timed.tok_s_lo,
            tok_s_hi=None if timed is None else timed.tok_s_hi,
            late_layers=None if timed is None else _late_layers(timed, workload.trace.layers),
        )

    return judged


def _late_layers(timed: Timed, layers: Sequence[int]) -> tuple[int, ...]:
    """The layers in which most decoded calls that use experts read ahead wait for one of them."""
    work = timed.work
    uses = np.zeros(len(work.row), np.bool_)
    uses[work.ahead_used[work.ahead_used >= 0]] = True
    uses &= work.phase != PHASE_PROMPT
    used, waited = (
        np.bincount(work.row[of], minlength=len(layers)) for of in (uses, uses & (timed.timeline.parts[:, LATE] > 0))
    )
    return tuple(layers[row] for row in np.flatnonzero(2 * waited > used).tolist())


def _in_threads(function: Callable[[T], R], items: Sequence[T], progress: Progress | None) -> list[R]:
    pool, found = ThreadPoolExecutor(os.cpu_count()), []
    try:
        for result in pool.map(function, items):
            found.append(result)
            if progress:
                progress(len(found), len(items))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return found
