"""How much of the hit rate is popularity, and how much is recency."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flashmoe_sim.residency.capacity import capacities
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.trace.nulls import shuffled_null, uniform_null
from flashmoe_sim.trace.routing import RoutingTrace


@dataclass(frozen=True)
class Nulls:
    """Hit rates of the same setup on the trace and on its null traces (`flashmoe_sim.trace.nulls`).

    closed_form: slots over experts, weighted by the requests of each layer: the hit rate on the uniform null of any
        policy without knowledge of the future, once its bank is full. None for one bank for all layers, where it does
        not hold.
    popularity_points: shuffled - uniform; recency_points: trace - shuffled; in points of hit rate.
    experts_known: whether the number of experts is known, or inferred from the largest id; the uniform null depends on
        it.
    """

    seed: int
    contract: str
    hit_rate: float
    shuffled: float
    uniform: float
    closed_form: float | None
    popularity_points: float
    recency_points: float
    experts_known: bool


def nulls_of(workload: Workload, setup: Setup, *, hit_rate: float, seed: int) -> Nulls:
    """Replay `setup`, whose hit rate on the trace is `hit_rate`, on the null traces."""

    def hit_rate_of(null: RoutingTrace) -> float:
        return float(replay(Workload(null, workload.geometry), setup).counts.total()["hit_rate"])

    shuffled = hit_rate_of(shuffled_null(workload.trace, seed=seed))
    uniform = hit_rate_of(uniform_null(workload.trace, seed=seed))
    return Nulls(
        seed=seed,
        contract=setup.contract,
        hit_rate=hit_rate,
        shuffled=shuffled,
        uniform=uniform,
        closed_form=_closed_form(workload, setup) if setup.scope == "layer" else None,
        popularity_points=100 * (shuffled - uniform),
        recency_points=100 * (hit_rate - shuffled),
        experts_known=workload.trace.n_experts_known,
    )


def _closed_form(workload: Workload, setup: Setup) -> float:
    requests = [int(pool.requests.sum()) for pool in workload.layer_pools]
    banks = [(bank.room // int(bank.size.max()), len(bank.size)) for bank in capacities(workload, setup)]
    return float(np.average([min(slots, experts) / experts for slots, experts in banks], weights=requests))
