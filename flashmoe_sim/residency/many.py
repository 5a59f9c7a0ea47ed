"""Many replays of one workload, with the passes shared that serve several bank sizes, cut into jobs for threads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from flashmoe_sim.policies.base import PinningPolicy, Policy
from flashmoe_sim.policies.min_ import Min
from flashmoe_sim.prefetchers.none import NoPrefetch
from flashmoe_sim.residency import nested, tally
from flashmoe_sim.residency.capacity import capacities
from flashmoe_sim.residency.counts import Counts
from flashmoe_sim.residency.curve import one_pass_policy, pool_curve
from flashmoe_sim.residency.replay import build_counts, pinned_keys, replay
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.residency.workload import Workload

Job = Callable[[], dict[Setup, Counts]]
PARTS = 8


def plan_jobs(workload: Workload, setups: Sequence[Setup]) -> list[Job]:
    """Independent jobs that together count every setup exactly as `replay` does.

    A setup may come from several jobs, each for some of the layers: `Counts.joined` puts them together.
    LRU banks of whole calls and static banks come from one stack pass, banks of min with bypass from one walk over
    nested banks; every other setup is a replay of its own.
    Raises BadInput, before any job runs, for a setup that does not fit the workload.
    """
    stacked: dict[Policy, list[Setup]] = defaultdict(list)
    walked: dict[str, list[Setup]] = defaultdict(list)
    jobs: list[Job] = []
    for setup in dict.fromkeys(setups):
        pools, banks = workload.pools(setup.scope), capacities(workload, setup)
        shareable = setup.bank.slots is not None and isinstance(setup.prefetch, NoPrefetch)
        calls_fit = all(int(pool.requests.max()) <= bank.room for pool, bank in zip(pools, banks, strict=True))
        calls_fit = calls_fit or isinstance(setup.policy, PinningPolicy)
        if shareable and type(setup.policy) is Min and setup.contract == "atomic":
            walked[setup.scope].append(setup)
        elif shareable and calls_fit and setup.scope == "layer" and one_pass_policy(setup.policy, setup.contract):
            stacked[setup.policy].append(setup)
        else:
            jobs.append(partial(_replay, workload, setup))
    shared = [(_nested_walk, group) for group in walked.values()]
    shared += [(_stack_pass, group) for group in stacked.values()]
    for number in range(PARTS):
        for one_pass, group in shared:
            pools = workload.pools(group[0].scope)
            if number < len(pools):
                jobs.insert(0, partial(one_pass, workload, group, range(number, len(pools), PARTS)))
    return jobs


def _replay(workload: Workload, setup: Setup) -> dict[Setup, Counts]:
    return {setup: replay(workload, setup).counts}


def _stack_pass(workload: Workload, setups: list[Setup], part: range) -> dict[Setup, Counts]:
    curves = {number: pool_curve(workload.layer_pools[number], setups[0].policy) for number in part}
    results = {}
    for setup in setups:
        banks = capacities(workload, setup)
        table = np.zeros((len(banks), tally.N_COLUMNS), np.int64)
        for number, curve in curves.items():
            table[number] = curve.counts(banks[number].room)
        results[setup] = build_counts(workload, setup, banks, table, pinned_keys(workload, setup))
    return results


def _nested_walk(workload: Workload, setups: list[Setup], part: range) -> dict[Setup, Counts]:
    banks = [capacities(workload, setup) for setup in setups]
    tables = np.zeros((len(setups), len(workload.trace.layers), tally.N_COLUMNS), np.int64)
    for number in part:
        pool = workload.pools(setups[0].scope)[number]
        rooms = np.array([bank[number].room for bank in banks], np.int64)
        sizes, which = np.unique(rooms, return_inverse=True)
        counts = np.zeros((len(sizes), *tables.shape[1:]), np.int64)
        nested.min_bypass(pool.key, pool.offset, pool.row, pool.next_call, pool.keys, sizes, counts)
        tables += counts[which]
    return {
        setup: build_counts(workload, setup, bank, table)
        for setup, bank, table in zip(setups, banks, tables, strict=True)
    }
