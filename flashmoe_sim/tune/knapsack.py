"""One size for every layer, at the least cost within a budget: the multiple-choice knapsack, solved exactly.

Layers with equally large experts share a dynamic program over slots: the least cost of any number of slots for the
first layers, layer by layer. A miss curve need not be convex, so greedily taking the best next slot would not be exact.

Groups with experts of different size are combined by a price per byte (Lagrange). At any price, the sum of each group's
cheapest choice, less the price of the budget, is at most the optimum; a choice that costs its group more than the
difference between that bound and a choice known to fit cannot be part of the optimum. The few remaining choices are all
tried.

Source: Bellman 1957 (dynamic programming); Everett 1963, Operations Research 11, 3 (prices); Pisinger 1995, European
Journal of Operational Research 83, 2 (reduction of the multiple-choice knapsack).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim._jit import jit

MOST_TRIED = 2**22
HALVINGS = 100
ROUNDING = 1e-9  # of cost sums, whose terms are added in different orders


@dataclass(frozen=True)
class Choice:
    """A size for every layer.

    cost: the sum of their costs. gap: by how much another choice may cost less; 0 if this is the optimum.
    """

    slots: tuple[int, ...]
    cost: float
    gap: float


@jit
def add_layer(before: Any, cost: Any, after: Any) -> None:
    """The least cost of a number of slots for some layers and one more: a min-plus convolution.

    before, after: f64 [slots + 1], without and with the layer. cost: f64, the layer's, by slots.
    """
    after[:] = np.inf
    for slots in range(len(cost)):
        own = cost[slots]
        if own == np.inf:
            continue
        into, without = after[slots:], before[: len(before) - slots]
        for total in range(len(into)):
            known = without[total] + own
            into[total] = known if known < into[total] else into[total]


class _Group:
    """Layers with equally large experts. least: f64, their least total cost by slots; it never rises."""

    def __init__(self, costs: Sequence[NDArray[np.float64]], expert_bytes: int, budget_bytes: int) -> None:
        self.expert_bytes = expert_bytes
        self.costs = [_worth_having(cost) for cost in costs]
        self.so_far = [np.zeros(1)]
        for cost in self.costs:
            most = min(budget_bytes // expert_bytes, len(self.so_far[-1]) + len(cost) - 2)
            before = np.append(self.so_far[-1], np.full(most + 1 - len(self.so_far[-1]), np.inf))
            self.so_far.append(np.empty(most + 1))
            add_layer(before, cost[: most + 1], self.so_far[-1])
        self.least = np.minimum.accumulate(self.so_far[-1])

    def slots(self, total: int) -> list[int]:
        """The slots of each layer, at most `total` together."""
        left, found = int(np.argmax(self.least == self.least[total])), []
        for cost, before, after in zip(self.costs[::-1], self.so_far[-2::-1], self.so_far[:0:-1], strict=True):
            first, last = max(left - len(before) + 1, 0), min(left, len(cost) - 1)
            sums = cost[first : last + 1] + before[left - last : left - first + 1][::-1]
            found.append(first + int(np.argmax(sums == after[left])))
            left -= found[-1]
        return found[::-1]


def _worth_having(cost: NDArray[np.float64]) -> NDArray[np.float64]:
    """The costs, infinite if fewer slots cost no more."""
    best_before = np.minimum.accumulate(np.append(np.inf, cost[:-1]))
    return np.where(cost < best_before, cost, np.inf)


def cheapest(costs: Sequence[NDArray[np.float64]], expert_bytes: Sequence[int], budget_bytes: int) -> Choice | None:
    """The sizes of least cost whose bytes are at most the budget; None if no sizes are.

    costs: of each layer, f64 by slots from 0; infinite for a size that is not allowed.
    """
    sizes = sorted(set(expert_bytes))
    members = [[place for place, one in enumerate(expert_bytes) if one == size] for size in sizes]
    groups = [
        _Group([costs[place] for place in places], size, budget_bytes)
        for size, places in zip(sizes, members, strict=True)
    ]
    found = _together(groups, budget_bytes)
    if found is None:
        return None
    totals, gap = found
    slots = [0] * len(costs)
    for group, places, total in zip(groups, members, totals, strict=True):
        for place, own in zip(places, group.slots(total), strict=True):
            slots[place] = own
    return Choice(tuple(slots), float(sum(cost[own] for cost, own in zip(costs, slots, strict=True))), gap)


def _together(groups: Sequence[_Group], budget_bytes: int) -> tuple[list[int], float] | None:
    """The slots of each group, and how far they may be from the optimum; None if nothing fits."""
    starts = [int(np.argmax(group.least < np.inf)) for group in groups]
    fits = all(group.least[start] < np.inf for group, start in zip(groups, starts, strict=True))
    if not fits or _bytes(groups, starts) > budget_bytes:
        return None
    totals, price = _priced(groups, starts, budget_bytes)
    known = float(sum(group.least[total] for group, total in zip(groups, totals, strict=True)))
    dear = [group.least + price * group.expert_bytes * np.arange(len(group.least)) for group in groups]
    gap = max(known - (sum(float(one.min()) for one in dear) - price * budget_bytes), 0.0)
    slack = gap + ROUNDING * (abs(known) + price * budget_bytes)
    over = [
        np.where(_worth_having(group.least) < np.inf, one - one.min(), np.inf)
        for group, one in zip(groups, dear, strict=True)
    ]
    order = sorted(range(len(groups)), key=lambda place: int((over[place] <= slack).sum()))
    best = _try_all([groups[place] for place in order], [over[place] for place in order], slack, budget_bytes)
    if best is None:
        return totals, gap
    return [best[order.index(place)] for place in range(len(groups))], 0.0


def _priced(groups: Sequence[_Group], starts: list[int], budget_bytes: int) -> tuple[list[int], float]:
    """A choice that fits, and the price per byte at which it is nearly the cheapest."""

    def at(price: float) -> list[int]:
        return [
            int(np.argmin(group.least + price * group.expert_bytes * np.arange(len(group.least)))) for group in groups
        ]

    low, high = 0.0, 1.0
    if _bytes(groups, at(low)) <= budget_bytes:
        return at(low), low
    while _bytes(groups, at(high)) > budget_bytes:
        low, high = high, 2 * high
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _bytes(groups, at(middle)) > budget_bytes else (low, middle)
    totals = at(high)
    for place, group in enumerate(groups):  # spend the rest of the budget
        room = budget_bytes - _bytes(groups, totals)
        totals[place] = min(totals[place] + room // group.expert_bytes, len(group.least) - 1)
    return totals, high


def _try_all(
    groups: Sequence[_Group], over: Sequence[NDArray[np.float64]], slack: float, budget_bytes: int
) -> list[int] | None:
    """The best of the choices that exceed the cheapest by at most `slack`; the last group takes what the others leave.

    over: f64, by slots of a group, their cost above its cheapest choice. None if there are too many.
    """
    taken, cost, sums, parts = np.zeros(1, np.int64), np.zeros(1), np.zeros(1), np.zeros((1, 0), np.int64)
    for group, own in zip(groups[:-1], over[:-1], strict=True):
        choices = np.flatnonzero(own <= slack)
        if len(taken) * len(choices) > MOST_TRIED:
            return None
        taken = np.add.outer(taken, choices * group.expert_bytes).ravel()
        sums = np.add.outer(sums, own[choices]).ravel()
        kept = np.flatnonzero((taken <= budget_bytes) & (sums <= slack))
        first, second = np.divmod(kept, len(choices))
        taken, sums = taken[kept], sums[kept]
        cost = cost[first] + group.least[choices[second]]
        parts = np.column_stack([parts[first], choices[second]])
    last = groups[-1]
    rest = np.minimum((budget_bytes - taken) // last.expert_bytes, len(last.least) - 1)
    best = int(np.argmin(cost + last.least[rest]))
    return [*parts[best].tolist(), int(rest[best])]


def _bytes(groups: Sequence[_Group], totals: Sequence[int]) -> int:
    return sum(group.expert_bytes * total for group, total in zip(groups, totals, strict=True))
