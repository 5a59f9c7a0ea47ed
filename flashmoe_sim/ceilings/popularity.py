"""How much of the hit rate is popularity, how much is recency, and whether what is popular early stays popular."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flashmoe_sim.ceilings.optimum import comparable_setup
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.policies.static import Static, StaticGlobal
from flashmoe_sim.residency.capacity import capacities
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.workload import Setup, Workload
from flashmoe_sim.trace.cut import cut
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


@dataclass(frozen=True)
class Stationarity:
    """Hit rates on the second half of the steps.

    policy: `static` for a bank per layer, `static:global` for one for all layers. contract: under which LRU was
    counted.
    profile: the hit rate of the experts that `policy` chooses by the first half. hindsight: of the experts that it
        chooses by the second half. Either set is resident before the half begins, and loading it is not a miss.
    lru_empty: of LRU with a bank that is empty when the half begins. lru_warm: with the bank as the first half left it.
    overlap: share of the experts chosen by the second half that the first half also chooses.
    """

    policy: str
    contract: str
    steps: int
    first_steps: int
    requests: int
    profile: float
    hindsight: float
    lru_empty: float
    lru_warm: float
    overlap: float


def stationarity_of(workload: Workload, setup: Setup) -> Stationarity | None:
    """Compare the halves of the trace in the banks of `setup`; None if a half lacks calls of some layer."""
    trace = workload.trace
    steps = np.unique(trace.steps)
    if len(steps) < 2:
        return None
    middle = int(steps[len(steps) // 2])
    halves = [Workload(cut(trace, steps=bounds), workload.geometry) for bounds in ((None, middle), (middle, None))]
    if any(half.trace.layers != trace.layers for half in halves):
        return None
    static = comparable_setup(setup, Static() if setup.scope == "layer" else StaticGlobal())
    lru = comparable_setup(setup, setup.policy if setup.policy.textbook == "lru" else Lru())
    first, second = (replay(half, static) for half in halves)
    later = second.counts.total()
    requests = max(later["requests"], 1)
    kept, chosen, both = 0, 0, 0
    for pool, early, late in zip(halves[1].pools(setup.scope), first.contents, second.contents, strict=True):
        repeats = setup.contract == "sequential"  # in which each reference is a request
        requested = np.bincount(pool.key, minlength=pool.keys) if repeats else pool.requests_by_key
        kept += int(requested[early].sum())
        chosen += len(late)
        both += len(np.intersect1d(early, late))
    warm = replay(workload, lru, record=True).stream
    assert warm is not None
    return Stationarity(
        policy=static.policy.spec,
        contract=lru.contract,
        steps=len(steps),
        first_steps=len(steps) // 2,
        requests=later["requests"],
        profile=kept / requests,
        hindsight=later["hits"] / requests,
        lru_empty=replay(halves[1], lru).counts.total()["hits"] / requests,
        lru_warm=int(warm.hits[trace.steps >= middle].sum()) / requests,
        overlap=both / max(chosen, 1),
    )
