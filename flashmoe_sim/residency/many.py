"""Many replays of one workload, with the passes shared that serve several bank sizes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from flashmoe_sim.policies.min_ import Min
from flashmoe_sim.residency import nested, tally
from flashmoe_sim.residency.capacity import capacities
from flashmoe_sim.residency.counts import Counts
from flashmoe_sim.residency.curve import curve_counts, one_pass_policy, pool_curve
from flashmoe_sim.residency.replay import build_counts, replay
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.residency.workload import Workload

Job = Callable[[], dict[Setup, Counts]]


def plan_jobs(workload: Workload, setups: Sequence[Setup]) -> list[Job]:
    """Independent jobs that together count every setup exactly as `replay` does.

    LRU banks of whole calls come from one stack pass, and banks of min with bypass from one walk over nested banks;
    every other setup is a replay of its own.
    Raises BadInput, before any job runs, for a setup that does not fit the workload.
    """
    stacked: list[Setup] = []
    walked: dict[str, list[Setup]] = defaultdict(list)
    jobs: list[Job] = []
    for setup in dict.fromkeys(setups):
        pools, banks = workload.pools(setup.scope), capacities(workload, setup)
        in_slots = setup.bank.slots is not None
        calls_fit = all(int(pool.requests.max()) <= bank.room for pool, bank in zip(pools, banks, strict=True))
        if in_slots and type(setup.policy) is Min and setup.contract == "atomic":
            walked[setup.scope].append(setup)
        elif in_slots and calls_fit and setup.scope == "layer" and one_pass_policy(setup.policy, setup.contract):
            stacked.append(setup)
        else:
            jobs.append(partial(_replay, workload, setup))
    if stacked:
        jobs.insert(0, partial(_stack_pass, workload, stacked))
    for group in walked.values():
        jobs.insert(0, partial(_nested_walk, workload, group))
    return jobs


def _replay(workload: Workload, setup: Setup) -> dict[Setup, Counts]:
    return {setup: replay(workload, setup).counts}


def _stack_pass(workload: Workload, setups: list[Setup]) -> dict[Setup, Counts]:
    curves = [pool_curve(pool, setups[0].policy) for pool in workload.layer_pools]
    return {setup: curve_counts(workload, setup, curves) for setup in setups}


def _nested_walk(workload: Workload, setups: list[Setup]) -> dict[Setup, Counts]:
    banks = [capacities(workload, setup) for setup in setups]
    tables = np.zeros((len(setups), len(workload.trace.layers), tally.N_COLUMNS), np.int64)
    for number, pool in enumerate(workload.pools(setups[0].scope)):
        rooms = np.array([bank[number].room for bank in banks], np.int64)
        sizes, which = np.unique(rooms, return_inverse=True)
        part = np.zeros((len(sizes), *tables.shape[1:]), np.int64)
        nested.min_bypass(pool.key, pool.offset, pool.row, pool.next_call, pool.keys, sizes, part)
        tables += part[which]
    return {
        setup: build_counts(workload, setup, bank, table)
        for setup, bank, table in zip(setups, banks, tables, strict=True)
    }
