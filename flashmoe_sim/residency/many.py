"""Many replays of one workload, cut into passes for many workers; bank sizes share work where they can."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import chain
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.policies.base import EvictingPolicy, Policy
from flashmoe_sim.prefetchers.none import NoPrefetch
from flashmoe_sim.residency import last_uses, tally
from flashmoe_sim.residency.capacity import Capacity, capacities
from flashmoe_sim.residency.counts import Counts
from flashmoe_sim.residency.curve import one_pass_policy, pinned_experts, pool_curve
from flashmoe_sim.residency.pool_replay import Recording, replay_pool
from flashmoe_sim.residency.replay import build_counts, replay
from flashmoe_sim.residency.workload import Setup, Workload

Job = Callable[[], dict[Setup, Counts]]
Kind = Literal["stack", "walk", "alone"]
Banks = dict[Setup, list[Capacity]]
PARTS = 8
SIZES = 16  # per walk: the sooner some rows are known, the less is lost if a process is killed


@dataclass(frozen=True)
class CountPass:
    """A unit of work for one worker, which counts some setups; it can be sent to where the workload is.

    kind: `stack` serves all sizes in one pass, `walk` replays each size pool by pool, `alone` replays one setup.
    part: which of the pools.
    """

    kind: Kind
    setups: tuple[Setup, ...]
    part: range

    def run(self, workload: Workload) -> dict[Setup, Counts]:
        """The counts of each setup, for its part of the pools; `Counts.joined` joins the parts."""
        return RUN[self.kind](workload, self.setups, self.part)


def plan_jobs(workload: Workload, setups: Sequence[Setup]) -> list[Job]:
    """The passes of `plan_counts` as functions without arguments."""
    return [partial(one.run, workload) for one in plan_counts(workload, setups)]


def plan_counts(
    workload: Workload, setups: Iterable[Setup], *, refused: dict[Setup, BadInput] | None = None
) -> list[CountPass]:
    """Independent passes that together count every setup exactly as `replay` does.

    A setup may take several passes, each over some of the pools. What bank sizes share depends on the policy: a stack
    pass over each layer, a walk from layer to layer, or nothing if it does not evict.
    Passes for the same setups come one after another, so that some setups are finished early.
    refused: called with each setup whose bank does not fit the workload, and why; it is not counted.
    Raises BadInput, before any pass runs, for a profile that does not fit the workload, and for a bank that does not
        fit if `refused` is not given.
    """
    stacked: list[Setup] = []
    walked = defaultdict[Any, list[Setup]](list)
    alone: list[Setup] = []
    for setup, banks in fitting(workload, setups, refused=refused):
        if _has_stack_pass(workload, setup, banks):
            stacked.append(setup)
        elif isinstance(setup.policy, EvictingPolicy):
            shares = _shares_last_uses(workload, setup, banks)
            walked[setup.policy, setup.contract, setup.scope, setup.prefetch, shares].append(setup)
        else:
            alone.append(setup)
    return [
        *_stack_jobs(workload, stacked),
        *chain.from_iterable(_walk_jobs(workload, group, shares=alike[-1]) for alike, group in walked.items()),
        *chain.from_iterable(_lone_jobs(workload, setup) for setup in alone),
    ]


def count(workload: Workload, setup: Setup, *, progress: Callable[[int, int], None] | None = None) -> Counts:
    """The counts of one setup, which `replay` counts too, from whichever passes serve it.

    progress: called after each pass with the number done and the total. Raises what `plan_counts` raises.
    """
    passes = plan_counts(workload, [setup])
    parts = []
    for one in passes:
        parts.append(one.run(workload)[setup])
        if progress is not None:
            progress(len(parts), len(passes))
    return reduce(Counts.joined, parts)


def fitting(
    workload: Workload, setups: Iterable[Setup], *, refused: dict[Setup, BadInput] | None = None
) -> Iterator[tuple[Setup, list[Capacity]]]:
    """Each setup that fits the workload, once, with its banks; the others, and why, go to `refused`.

    Raises BadInput for a profile that does not fit and, without `refused`, for a bank that does not.
    """
    for setup in dict.fromkeys(setups):
        try:
            banks = capacities(workload, setup)
            if setup.contract == "runtime" and setup.fixed_slots and not _holds_every_call(workload, setup, banks):
                replay(workload, setup)  # only a replay shows whether every call finds its slots
        except BadInput as error:
            if refused is None:
                raise
            refused[setup] = error
            continue
        workload.profile(setup.policy)
        yield setup, banks


def _has_stack_pass(workload: Workload, setup: Setup, banks: list[Capacity]) -> bool:
    if setup.scope == "global" or not setup.bank.in_slots or not isinstance(setup.prefetch, NoPrefetch):
        return False
    calls_fit = setup.policy.textbook != "lru" or _holds_every_call(workload, setup, banks)
    return one_pass_policy(setup.policy, setup.contract) and calls_fit


def _holds_every_call(workload: Workload, setup: Setup, banks: list[Capacity]) -> bool:
    return all(pool.calls_fit(bank.room) for pool, bank in zip(workload.pools(setup.scope), banks, strict=True))


def _stack_jobs(workload: Workload, setups: list[Setup]) -> list[CountPass]:
    return [CountPass("stack", tuple(setups), part) for part in _parts(len(workload.layer_pools)) if setups]


def _stack_pass(workload: Workload, setups: Sequence[Setup], part: range) -> dict[Setup, Counts]:
    """One pass over each layer's calls for each policy, which all run while the layer is in the processor's caches."""
    groups = defaultdict[Policy, list[tuple[Setup, list[Capacity], NDArray[np.int64]]]](list)
    for setup in setups:
        groups[setup.policy].append((setup, capacities(workload, setup), _empty_table(workload)))
    for number in part:
        for policy, group in groups.items():
            curve = pool_curve(workload.layer_pools[number], policy, workload.profile(policy).pools[number])
            counted = curve.counts(np.array([banks[number].room for _, banks, _ in group]))
            for (_, _, table), row in zip(group, counted, strict=True):
                table[number] = row
    results = {}
    for setup, banks, table in chain.from_iterable(groups.values()):
        pinned = pinned_experts(workload, setup, banks, part)
        results[setup] = build_counts(workload, setup, banks, table, pinned, part=part)
    return results


def _empty_table(workload: Workload) -> NDArray[np.int64]:
    return np.zeros((len(workload.trace.layers), tally.N_COLUMNS), np.int64)


def _shares_last_uses(workload: Workload, setup: Setup, banks: list[Capacity]) -> bool:
    """Whether a setup is LRU under `runtime`, starts empty and reads nothing ahead, and every call fits its bank."""
    if setup.contract != "runtime" or setup.policy.textbook != "lru" or not isinstance(setup.prefetch, NoPrefetch):
        return False
    if setup.policy.reads_profile is not None or setup.policy.minor_rule is not None:
        return False
    return _holds_every_call(workload, setup, banks)


def _walk_jobs(workload: Workload, setups: list[Setup], *, shares: bool) -> list[CountPass]:
    """Walks over parts of the pools, for up to SIZES sizes; if there are few pools, walks over one for some sizes.

    shares: whether the sizes of a walk share work, and so are kept together.
    """
    parts = _parts(len(workload.pools(setups[0].scope)))
    cut = 1 if shares else min(PARTS // len(parts), len(setups))
    jobs = max(cut, -(-len(setups) // SIZES))
    return [CountPass("walk", tuple(setups[n::jobs]), part) for n in range(jobs) for part in parts]


def _walk(workload: Workload, setups: Sequence[Setup], part: range) -> dict[Setup, Counts]:
    """Visit each pool once, for every size. The sizes of LRU under `runtime` share work, others are replayed."""
    group = _banks(workload, setups)
    pools = workload.pools(setups[0].scope)
    tables = np.zeros((len(group), *_empty_table(workload).shape), np.int64)
    if all(_shares_last_uses(workload, setup, banks) for setup, banks in group.items()):
        for number in part:
            pool, rooms = pools[number], np.array([banks[number].room for banks in group.values()])
            last_uses.lru(pool.key, pool.offset, pool.row, pool.keys, rooms, tables)
    else:
        ahead = workload.ahead(setups[0].prefetch, setups[0].scope)
        for number in part:
            nothing = Recording.of(pools[number], ahead[number], wanted=False)
            for (setup, banks), table in zip(group.items(), tables, strict=True):
                replay_pool(workload, setup, number, banks[number], ahead[number], table, nothing)
    return {
        setup: build_counts(workload, setup, banks, table, part=part)
        for (setup, banks), table in zip(group.items(), tables, strict=True)
    }


def _lone_jobs(workload: Workload, setup: Setup) -> list[CountPass]:
    return [CountPass("alone", (setup,), range(len(workload.pools(setup.scope))))]


def _lone_replay(workload: Workload, setups: Sequence[Setup], part: range) -> dict[Setup, Counts]:
    return {setup: replay(workload, setup).counts for setup in setups}


def _banks(workload: Workload, setups: Sequence[Setup]) -> Banks:
    return {setup: capacities(workload, setup) for setup in setups}


def _parts(pools: int) -> list[range]:
    """The pools of each of up to PARTS passes."""
    return [range(number, pools, PARTS) for number in range(min(PARTS, pools))]


RUN: dict[Kind, Callable[[Workload, Sequence[Setup], range], dict[Setup, Counts]]] = {
    "stack": _stack_pass,
    "walk": _walk,
    "alone": _lone_replay,
}
