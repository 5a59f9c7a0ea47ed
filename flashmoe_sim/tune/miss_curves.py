"""Each layer's misses at every size of its bank."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.residency import tally
from flashmoe_sim.residency.counts import Counts
from flashmoe_sim.residency.curve import one_pass_policy, pool_curve
from flashmoe_sim.residency.many import plan_jobs
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.residency.workload import Workload

STEPS_A_DOUBLING = 8  # sizes that are replayed for a policy without a one-pass curve


def miss_curves(
    workload: Workload, setup: Setup, asked: Sequence[int], progress: Callable[[int, int], None] | None = None
) -> tuple[list[NDArray[np.float64]], bool]:
    """Each layer's misses at every size, f64 by slots, and whether every size was counted.

    A size has infinite misses if it cannot hold the layer's largest call, or was not counted. One pass counts every
    size if the policy allows it, or for LRU the sizes that hold the largest call. Otherwise replays count the sizes of
    `asked`, and a ladder of 8 per doubling.
    asked: slots of each layer in the bank of `setup`. Raises BadInput if that bank cannot hold a call.
    progress: called with the replays done and all.
    """
    curves = [np.full(n + 1, np.inf) for n in workload.n_experts]
    wanted = set(ladder(max(workload.n_experts))) | set(asked)
    exact = one_pass_policy(setup.policy, setup.contract)
    if exact:
        profile = workload.profile(setup.policy).pools
        smallest = []
        for curve, pool, seen in zip(curves, workload.layer_pools, profile, strict=True):
            passed = pool_curve(pool, setup.policy, seen)
            smallest.append(passed.smallest)
            sizes = np.arange(passed.smallest, len(curve))
            curve[sizes] = passed.counts(sizes)[:, tally.MISSES]
        below = range(1, max(smallest) if setup.contract == "atomic" else 1)
        wanted &= set(below)
        exact = wanted == set(below)
    for size, counts in _replayed(workload, setup, sorted(wanted), progress).items():
        for curve, misses in zip(curves, counts.table[:, tally.MISSES], strict=True):
            place = min(size, len(curve) - 1)
            curve[place] = min(curve[place], misses)
    if any(curve[n] == np.inf for curve, n in zip(curves, asked, strict=True)):  # too few for another layer's calls
        own = replay(workload, setup).counts.table[:, tally.MISSES]
        for curve, n, misses in zip(curves, asked, own, strict=True):
            curve[n] = misses
    return curves, exact


def ladder(most: int) -> list[int]:
    """Sizes from 1 to `most`: every one up to 8, then 8 per doubling, and the last."""
    steps = {size: 1 << max(0, size.bit_length() - STEPS_A_DOUBLING.bit_length()) for size in range(1, most + 1)}
    return [size for size, step in steps.items() if size % step == 0 or size == most]


def _replayed(
    workload: Workload, setup: Setup, sizes: Sequence[int], progress: Callable[[int, int], None] | None
) -> dict[int, Counts]:
    """The counts of banks with these slots per layer, without banks that cannot hold the largest call."""
    setups = {replace(setup, bank=Bank(slots=size)): size for size in sizes}
    found: dict[int, Counts] = {}
    jobs = plan_jobs(workload, list(setups), refused={})
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for number, part in enumerate(pool.map(lambda job: job(), jobs)):
            if progress:
                progress(number + 1, len(jobs))
            for one, counts in part.items():
                size = setups[one]
                found[size] = found[size].joined(counts) if size in found else counts
    return found
