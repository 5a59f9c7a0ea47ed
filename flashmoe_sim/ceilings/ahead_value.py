"""What predictors cost and save in a bank, and how right one must be to pay."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

from flashmoe_sim.ceilings.search import smallest
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.prefetchers.base import Prefetcher, default_width
from flashmoe_sim.prefetchers.none import NoPrefetch
from flashmoe_sim.prefetchers.synthetic import Synthetic
from flashmoe_sim.residency import tally
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.residency.workload import Workload

RECALLS = (0.25, 0.5, 0.75, 1.0)

T = TypeVar("T")
R = TypeVar("R")
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class AheadValue:
    """One predictor in one bank.

    prefetch: the predictor with its parameters. hindsight: whether it predicts from what is yet to come.
    precision, recall: of its predictions, whatever the bank; None without any.
    read_ahead: experts read ahead. useful: of those, how many were hit before they were evicted; late: of the useful,
        how many the very next routed call requested. wasted: how many were evicted, or left at the end, unused.
    misses: demand misses. saved: how many fewer than without a predictor.
    tokens: of the workload. bytes_read: for demand misses and ahead together; None if no geometry is known.
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

    @property
    def worth(self) -> float | None:
        """Demand misses saved for each expert read ahead; None if none is."""
        return self.saved / self.read_ahead if self.read_ahead else None

    def pays(self, price: float) -> bool:
        """Whether it saves what it costs, when an expert read ahead costs `price` of a demand miss."""
        return self.saved >= price * self.read_ahead


@dataclass(frozen=True)
class BreakEven:
    """What predictors of chosen quality are worth that name experts one step ahead.

    extras: wrong experts named for each call. grid: for each of them one value for each of RECALLS.
    needed: for each of them the least recall from 0.01 on, in steps of that, that pays at `price`; None if no value
        of the grid does.
    """

    price: float
    extras: tuple[int, ...]
    grid: tuple[tuple[AheadValue, ...], ...]
    needed: tuple[float | None, ...]


def ahead_values(
    workload: Workload, setup: Setup, prefetchers: Sequence[Prefetcher], *, progress: Progress | None = None
) -> list[AheadValue]:
    """What each predictor costs and saves in the bank of `setup`, whose own predictor does not matter.

    progress: called with the number of predictors done and of all.
    Raises BadInput for a predictor or a bank that cannot be had.
    """
    judged = _judged(workload, setup, prefetchers)
    return _in_threads(judged, prefetchers, progress)


def break_even(workload: Workload, setup: Setup, *, price: float, progress: Progress | None = None) -> BreakEven:
    """How right a predictor must be to pay in the bank of `setup`, by how many wrong experts it names.

    Wrong experts are none, a quarter, a half, all and twice of what a token uses. The same draws are made for every
    recall, so that what is named at a higher one includes what is at a lower one.
    price: what an expert read ahead costs, as a share of a demand miss.
    progress: called with the number of rows of the grid done and of all.
    Raises BadInput for a price below 0, and as `ahead_values` does.
    """
    if not price >= 0:
        raise BadInput(f"price {price}: expected 0 or more, what a read ahead costs as a share of one that stalls")
    judged = _judged(workload, setup, [Synthetic()])
    width = default_width(workload.trace)
    extras = tuple(dict.fromkeys((0, *(max(width * quarters // 4, 1) for quarters in (1, 2, 4, 8)))))

    def row(extra: int) -> tuple[tuple[AheadValue, ...], float | None]:
        values = tuple(judged(Synthetic(recall, extra)) for recall in RECALLS)
        paying = [value.pays(price) for value in values]
        if not any(paying):
            return values, None
        # Between the last recall before the first that pays, and that one, in per cent.
        bounds = [1, *(round(100 * recall) for recall in RECALLS)]
        low, high = bounds[paying.index(True) : paying.index(True) + 2]
        more = smallest(lambda more: judged(Synthetic((low + more) / 100, extra)).pays(price), high - low)
        assert more is not None, "the upper bound pays"
        return values, (low + more) / 100

    grid, needed = zip(*_in_threads(row, extras, progress), strict=True)
    return BreakEven(price, extras, grid, needed)


def _judged(workload: Workload, setup: Setup, prefetchers: Sequence[Prefetcher]) -> Callable[[Prefetcher], AheadValue]:
    """A function of one predictor, once it is known that all of these can be had."""
    for prefetcher in prefetchers:
        replace(setup, prefetch=prefetcher)
    without = replay(workload, replace(setup, prefetch=NoPrefetch())).counts.total()["misses"]

    def judged(prefetcher: Prefetcher) -> AheadValue:
        counts = replay(workload, replace(setup, prefetch=prefetcher)).counts
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
        )

    return judged


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
