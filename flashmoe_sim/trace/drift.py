"""Whether the experts that are hot early stay hot."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.trace.counting import count_requests, fresh
from flashmoe_sim.trace.routing import RoutingTrace
from flashmoe_sim.trace.statistics import experts_of


@dataclass(frozen=True, eq=False)
class Drift:
    """How hot sets change between windows of equal numbers of steps.

    first_step, last_step: i64 [windows], the steps of each window, counted from 0.
    of_first, of_previous: f64 [windows], the share of each window's hot set that was hot in the first window, and in
        the window before; 1 for the first window itself. chance: the expected share for two random sets of this size.
    """

    first_step: NDArray[np.int64]
    last_step: NDArray[np.int64]
    of_first: NDArray[np.float64]
    of_previous: NDArray[np.float64]
    chance: float


def hot_set_drift(trace: RoutingTrace, *, windows: int = 20) -> Drift:
    """Compare the hot sets of windows: the tenth of each layer's experts, rounded up, that a window requests most.

    Among experts requested equally often, those with lower numbers are hot; one that is never requested is not.
    Raises BadInput for fewer than 2 windows, and for a trace with fewer than 2 steps.
    """
    steps, step = np.unique(trace.steps, return_inverse=True)
    if windows < 2:
        raise BadInput(f"{windows} windows: expected at least 2")
    if len(steps) < 2:
        raise BadInput(f"{trace.name or 'trace'}: has {len(steps)} steps; expected at least 2 to see a change")
    ends = np.linspace(0, len(steps), min(windows, len(steps)) + 1).astype(np.int64)
    sizes, with_first, with_previous = np.zeros((3, len(ends) - 1), np.int64)
    experts = hot_experts = 0
    for view in trace.by_layer:
        n_experts = experts_of(trace, view)
        most = -(-n_experts // 10)
        experts, hot_experts = experts + n_experts, hot_experts + most
        bounds = np.searchsorted(step[view.call], ends)
        hot = np.zeros((len(ends) - 1, n_experts), np.bool_)
        for window, (begin, end) in enumerate(pairwise(bounds)):
            requests, union = np.zeros(n_experts, np.int64), np.zeros(end - begin, np.int32)
            offset = view.offset[begin : end + 1]
            count_requests(offset, view.expert, fresh(n_experts), fresh(n_experts), union, requests)
            hot[window, np.argsort(-requests, kind="stable")[:most]] = True
            hot[window] &= requests > 0
        sizes += hot.sum(axis=1)
        with_first += (hot & hot[0]).sum(axis=1)
        with_previous += (hot & np.concatenate([hot[:1], hot[:-1]])).sum(axis=1)
    sizes = np.maximum(sizes, 1)
    return Drift(ends[:-1], ends[1:] - 1, with_first / sizes, with_previous / sizes, hot_experts / experts)
