"""Many replays of one workload, with the passes shared that serve several bank sizes, cut into jobs for threads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from flashmoe_sim.policies.base import Policy
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.policies.min_ import Min
from flashmoe_sim.policies.static import Static
from flashmoe_sim.prefetchers.none import NoPrefetch
from flashmoe_sim.residency import nested, recency, tally
from flashmoe_sim.residency.capacity import Capacity, capacities
from flashmoe_sim.residency.counts import Counts
from flashmoe_sim.residency.curve import one_pass_policy, pinned_experts, pool_curve
from flashmoe_sim.residency.replay import build_counts, replay
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.residency.workload import Workload

Job = Callable[[], dict[Setup, Counts]]
Banks = dict[Setup, list[Capacity]]
PARTS = 8


def plan_jobs(workload: Workload, setups: Sequence[Setup]) -> list[Job]:
    """Independent jobs that together count every setup exactly as `replay` does.

    A setup may come from several jobs, each for some of the layers: `Counts.joined` puts them together.
    A layer's LRU banks of whole calls, static banks and banks of min with bypass come from one stack pass each, global
    banks of LRU (in slots or bytes) and of min with bypass from one walk each; every other setup is a replay of its
    own.
    Raises BadInput, before any job runs, for a setup that does not fit the workload.
    """
    stacked: dict[Policy, Banks] = defaultdict(dict)
    walked: dict[tuple[Policy, bool], Banks] = defaultdict(dict)  # and whether keys weigh bytes
    jobs: list[Job] = []
    for setup in dict.fromkeys(setups):
        pools, banks = workload.pools(setup.scope), capacities(workload, setup)
        workload.profile(setup.policy)
        shareable = setup.bank.slots is not None and isinstance(setup.prefetch, NoPrefetch)
        calls_fit = all(int(pool.requests.max()) <= bank.room for pool, bank in zip(pools, banks, strict=True))
        calls_fit = calls_fit or type(setup.policy) is not Lru
        one_walk = isinstance(setup.prefetch, NoPrefetch) and setup.scope == "global"
        one_walk = one_walk and one_pass_policy(setup.policy, setup.contract) and not isinstance(setup.policy, Static)
        if shareable and calls_fit and setup.scope == "layer" and one_pass_policy(setup.policy, setup.contract):
            stacked[setup.policy][setup] = banks
        elif one_walk and (shareable if type(setup.policy) is Min else _calls_weigh_less(workload, banks)):
            walked[setup.policy, setup.bank.slots is None and not setup.fixed_slots][setup] = banks
        else:
            jobs.append(partial(_replay, workload, setup))
    for group in walked.values():
        jobs.insert(0, partial(_one_walk, workload, group))
    for number in range(PARTS):
        for group in stacked.values():
            if number < len(workload.layer_pools):
                jobs.insert(0, partial(_stack_pass, workload, group, range(number, len(workload.layer_pools), PARTS)))
    return jobs


def _replay(workload: Workload, setup: Setup) -> dict[Setup, Counts]:
    return {setup: replay(workload, setup).counts}


def _stack_pass(workload: Workload, group: Banks, part: range) -> dict[Setup, Counts]:
    policy = next(iter(group)).policy
    profile = workload.profile(policy).pools
    curves = {number: pool_curve(workload.layer_pools[number], policy, profile[number]) for number in part}
    results = {}
    for setup, banks in group.items():
        table = np.zeros((len(banks), tally.N_COLUMNS), np.int64)
        for number, curve in curves.items():
            table[number] = curve.counts(banks[number].room)
        results[setup] = build_counts(workload, setup, banks, table, pinned_experts(workload, setup, banks))
    return results


def _calls_weigh_less(workload: Workload, banks: list[Capacity]) -> bool:
    """Whether the one bank for all layers holds every call; a call's experts are of one layer, and weigh the same."""
    (pool,), (bank,) = workload.global_pools, banks
    of_layer = bank.size[np.searchsorted(pool.key_row, pool.row)]
    return int((pool.requests * of_layer).max()) <= bank.room


def _one_walk(workload: Workload, group: Banks) -> dict[Setup, Counts]:
    (pool,) = workload.global_pools
    sizes, which = np.unique([bank.room for (bank,) in group.values()], return_inverse=True)
    counts = np.zeros((len(sizes), len(workload.trace.layers), tally.N_COLUMNS), np.int64)
    (bank,) = next(iter(group.values()))
    if isinstance(next(iter(group)).policy, Lru):
        recency.lru(pool.key, pool.offset, pool.row, bank.size, sizes, counts)
    else:
        nested.min_bypass(pool.key, pool.offset, pool.row, pool.next_call, pool.keys, sizes, counts)
    return {
        setup: build_counts(workload, setup, banks, counts[number])
        for (setup, banks), number in zip(group.items(), which, strict=True)
    }
