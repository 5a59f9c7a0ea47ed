"""Whether the experts that are popular early stay popular."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flashmoe_sim.ceilings.optimum import comparable_setup
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.policies.static import Static, StaticGlobal
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.trace.cut import cut


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
