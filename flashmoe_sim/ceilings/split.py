"""The cause of each miss."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flashmoe_sim.ceilings.gap import Gap
from flashmoe_sim.residency.replay import Replayed
from flashmoe_sim.residency.workload import Workload


@dataclass(frozen=True)
class MissSplit:
    """misses = compulsory + capacity + policy + conflict - loaded_ahead, exactly.

    compulsory: first uses of an expert in its layer; every bank that starts empty misses them.
    capacity: further misses of min with bypass: no policy in these banks avoids them.
    policy: misses of the policy beyond min's, by its choice of victims and of what to admit (`Gap` has the two parts);
        counted under `protected` if the setup is under `runtime`.
    conflict: the effect of slot aliasing: misses under `runtime` less those under `protected`. Negative if aliasing
        hides more misses than it causes: an aliased request counts as a hit. 0 under the other contracts.
    aliased_refs: requests that counted as hits in a slot already given to another expert of their call.
    loaded_ahead: experts that the policy loaded without a miss, before the run or between steps, and then hit.

    capacity, policy: None if the optimum is not known; together they are misses - compulsory - conflict +
    loaded_ahead.
    """

    misses: int
    compulsory: int
    capacity: int | None
    policy: int | None
    conflict: int
    aliased_refs: int
    loaded_ahead: int


def split_misses(workload: Workload, own: Replayed, gap: Gap) -> MissSplit:
    """Split the misses of `own`; `gap` is its distance to `min`."""
    total = own.counts.total()
    compulsory = sum(int(np.count_nonzero(pool.requests_by_key)) for pool in workload.layer_pools)
    return MissSplit(
        misses=int(total["misses"]),
        compulsory=compulsory,
        capacity=None if gap.minimum is None else gap.minimum - compulsory,
        policy=None if gap.minimum is None else gap.policy - gap.minimum,
        conflict=int(total["misses"]) + gap.loaded_ahead - gap.policy,
        aliased_refs=int(total["aliased_refs"]),
        loaded_ahead=gap.loaded_ahead,
    )
