"""What predictors cost and save in a bank, and how right one must be to pay."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from flashmoe_sim.errors import BadInput
from flashmoe_sim.prefetchers.base import Prefetcher, default_width
from flashmoe_sim.prefetchers.none import NoPrefetch
from flashmoe_sim.prefetchers.synthetic import Synthetic
from flashmoe_sim.residency import tally
from flashmoe_sim.residency.counts import Counts
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.residency.workload import Workload

RECALLS = (0.25, 0.5, 0.75, 1.0)
HALVINGS = 5  # of 25 per cent, to one

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class AheadValue:
    """One predictor in one bank.

    prefetch: the predictor with its parameters. hindsight: whether it predicts from what is yet to come.
    precision, recall: of its predictions, whatever the bank; None without any.
    read_ahead: experts read ahead. useful: of those, how many were hit before they were evicted; late: of the useful,
        how many the very next routed call asked for. wasted: how many were evicted, or left at the end, unused.
    misses: demand misses. saved: how many fewer than without a predictor.
    tokens: of the workload. bytes_read: for demand misses and ahead together; None where no geometry is known.
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
        """Demand misses saved for each expert read ahead; None where none is."""
        return self.saved / self.read_ahead if self.read_ahead else None

    def pays(self, price: float) -> bool:
        """Whether it saves what it costs, when an expert read ahead costs `price` of a demand miss."""
        return self.saved >= price * self.read_ahead


@dataclass(frozen=True)
class BreakEven:
    """What predictors of chosen quality are worth that name experts one step ahead.

    extras: wrong experts named for each call. grid: for each of them one value for each of RECALLS.
    needed: for each of them the least recall that pays at `price`, in steps of 0.01; None where none does.
    """

    price: float
    extras: tuple[int, ...]
    grid: tuple[tuple[AheadValue, ...], ...]
    needed: tuple[float | None, ...]


def ahead_values(
    workload: Workload, setup: Setup, prefetchers: Sequence[Prefetcher], *, progress: Progress | None = None
) -> list[AheadValue]:
    """What each predictor costs and saves in the bank of `setup`, whose own predictor does not matter.

    progress: called with the number of finished replays and of all.
    Raises BadInput for a predictor or a bank that cannot be had.
    """
    setups = [replace(setup, prefetch=prefetcher) for prefetcher in prefetchers]
    return _values(workload, setups, _without(workload, setup), _Counted(progress, len(setups)))


def break_even(workload: Workload, setup: Setup, *, price: float, progress: Progress | None = None) -> BreakEven:
    """How right a predictor must be to pay in the bank of `setup`, by how many wrong experts it names.

    Wrong experts are none, a quarter, a half, all and twice of what a token uses. The least recall is searched for
    between the largest of RECALLS that does not pay and the next; the same seed makes what is predicted at a higher
    recall include what is at a lower one.
    price: what an expert read ahead costs, as a share of a demand miss.
    progress: called with the number of finished replays and of the most there can be.
    Raises BadInput for a price below 0, and as `ahead_values` does.
    """
    if not price >= 0:
        raise BadInput(f"price {price}: expected 0 or more, what a read ahead costs as a share of one that stalls")
    width = default_width(workload.trace)
    extras = tuple(dict.fromkeys((0, *(max(width * quarters // 4, 1) for quarters in (1, 2, 4, 8)))))
    setups = [replace(setup, prefetch=Synthetic(recall, extra)) for extra in extras for recall in RECALLS]
    without, counted = _without(workload, setup), _Counted(progress, len(extras) * (len(RECALLS) + HALVINGS))
    flat = _values(workload, setups, without, counted)
    grid = [tuple(flat[at : at + len(RECALLS)]) for at in range(0, len(flat), len(RECALLS))]
    low: dict[int, int] = {}  # per cent that does not pay, and that does, by the place in extras
    high: dict[int, int] = {}
    for row, values in enumerate(grid):
        paying = [value.pays(price) for value in values]
        if any(paying):
            place = paying.index(True)
            high[row] = round(100 * RECALLS[place])
            low[row] = round(100 * RECALLS[place - 1]) if place else 0
    while middle := {row: (low[row] + high[row]) // 2 for row in high if high[row] - low[row] > 1}:
        setups = [replace(setup, prefetch=Synthetic(percent / 100, extras[row])) for row, percent in middle.items()]
        found = _values(workload, setups, without, counted)
        for (row, percent), value in zip(middle.items(), found, strict=True):
            (high if value.pays(price) else low)[row] = percent
    needed = tuple(high[row] / 100 if row in high else None for row in range(len(extras)))
    return BreakEven(price, extras, tuple(grid), needed)


class _Counted:
    """Counts finished replays for `progress`, of `total` at most."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0

    def one_more(self) -> None:
        self._done += 1
        if self._progress:
            self._progress(self._done, self._total)


def _without(workload: Workload, setup: Setup) -> Counts:
    return replay(workload, replace(setup, prefetch=NoPrefetch())).counts


def _values(workload: Workload, setups: list[Setup], without: Counts, counted: _Counted) -> list[AheadValue]:
    def one(setup: Setup) -> AheadValue:
        value = _value(setup.prefetch, replay(workload, setup).counts, without)
        workload.forget_ahead(setup.prefetch, setup.scope)
        return value

    pool, found = ThreadPoolExecutor(os.cpu_count()), []
    try:
        for value in pool.map(one, setups):
            counted.one_more()
            found.append(value)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return found


def _value(prefetcher: Prefetcher, counts: Counts, without: Counts) -> AheadValue:
    total, misses = counts.total(), without.total()["misses"]
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
        saved=misses - total["misses"],
        tokens=counts.tokens,
        bytes_read=None if demand_bytes is None else demand_bytes + ahead_bytes,
    )
