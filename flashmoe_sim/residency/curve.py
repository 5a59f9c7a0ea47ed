"""The exact counts of every bank size in one pass, for the policies that allow it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import Unsupported
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.base import Policy
from flashmoe_sim.residency import one_pass, tally
from flashmoe_sim.residency.capacity import Capacity, capacities
from flashmoe_sim.residency.counts import Counts
from flashmoe_sim.residency.pool import Pool
from flashmoe_sim.residency.replay import build_counts
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.residency.workload import Workload

MOST_SHOWN = 20


@dataclass(frozen=True, eq=False)
class PoolCurve:
    """The result of one pass over a pool.

    depths: i64 [keys + 1], requests that hit in every bank with more slots than their index; those in the last entry
    hit in none.
    deepest: i64 [keys + 1], calls by their deepest request.
    declined: i64 [keys + 1], requests that no bank with at most that many slots admits; None if all are admitted.
    distinct: number of keys that occur. smallest: the smallest bank for which the counts are exact.
    """

    calls: int
    refs: int
    depths: NDArray[np.int64]
    deepest: NDArray[np.int64]
    declined: NDArray[np.int64] | None
    distinct: int
    smallest: int

    def counts(self, slots: int | NDArray[np.int64]) -> NDArray[np.int64]:
        """The counts of a bank of `slots` slots, i64 [tally.N_COLUMNS]; for several banks, one row each."""
        row = np.zeros((*np.shape(slots), tally.N_COLUMNS), np.int64)
        requests, hits = self.depths.sum(), _before(self.depths, slots)
        bypassed = 0 if self.declined is None else self.declined.sum() - _before(self.declined, slots)
        cold = np.minimum(slots, self.distinct)
        row[..., tally.CALLS] = self.calls
        row[..., tally.REFS] = self.refs
        row[..., tally.REQUESTS] = requests
        row[..., tally.HITS] = hits
        row[..., tally.MISSES] = requests - hits
        row[..., tally.BYPASSED] = bypassed
        row[..., tally.COLD] = cold
        row[..., tally.EVICTIONS] = requests - hits - bypassed - cold
        row[..., tally.FULL_HIT_CALLS] = _before(self.deepest, slots)
        return row


def _before(numbers: NDArray[np.int64], slots: int | NDArray[np.int64]) -> NDArray[np.int64]:
    """The sum of the first `slots` numbers."""
    return np.cumsum(numbers)[slots - 1]


def one_pass_policy(policy: Policy, contract: str) -> bool:
    """Whether one pass counts every bank size for this policy under this contract."""
    if policy.textbook == "most-requested":
        return contract != "sequential"
    if policy.reads_profile is not None or policy.minor_rule is not None:  # not empty at first, or not all come in
        return False
    if policy.textbook == "lru":
        return getattr(policy, "stamp", "first") == "first" and contract in ("protected", "atomic")
    return policy.textbook == "min" and contract == "atomic"


def pool_curve(pool: Pool, policy: Policy, profile: Pool | None = None) -> PoolCurve:
    """One pass over a pool for a policy that `one_pass_policy` accepts.

    profile: the pool in which a static policy counts requests; by default the same pool.
    """
    depths, deepest, declined = counted = np.zeros((3, pool.keys + 1), np.int64)
    if policy.textbook == "most-requested":
        profile = profile or pool
        pinnable = policy.order(profile.requests_by_key, profile.first_reference)  # type: ignore[attr-defined]
        pinnable = pinnable[profile.requests_by_key[pinnable] > 0]
        rank = np.full(pool.keys, pool.keys, np.uint16)
        rank[pinnable] = np.arange(len(pinnable))
        depths[: len(pinnable)] = pool.requests_by_key[pinnable]
        depths[-1] = pool.requests_by_key.sum() - depths.sum()
        one_pass.deepest_calls(pool.key, pool.offset, rank, deepest)
        return PoolCurve(len(pool.call), len(pool.key), depths, deepest, declined=depths, distinct=0, smallest=1)
    if policy.textbook == "lru":
        distinct = one_pass.lru(pool.key, pool.offset, 0, first_ranks(pool.keys), depths, deepest)
        smallest = pool.largest_call
        return PoolCurve(len(pool.call), len(pool.key), depths, deepest, None, distinct, smallest)
    empty = np.full(pool.keys + 1, -1, np.int32)  # all gaps, one more than there are keys
    distinct = one_pass.min_bypass(pool.key, pool.offset, pool.next_call, empty, counted)
    return PoolCurve(len(pool.call), len(pool.key), depths, deepest, declined, distinct, 1)


def first_ranks(keys: int) -> NDArray[Any]:
    """The places of keys in LRU's list before the first call, in the smallest type that holds them."""
    return np.arange(keys).astype(np.uint8 if keys <= 256 else np.uint16)


def pinned_experts(workload: Workload, setup: Setup, banks: list[Capacity], part: range) -> NDArray[np.int64] | None:
    """How many experts of each layer in `part` a static bank holds, i64 [layers]; None for a policy that evicts."""
    if setup.policy.textbook != "most-requested":
        return None
    profile, pinned = workload.profile(setup.policy).pools, np.zeros(len(banks), np.int64)
    for number in part:
        pinned[number] = min(banks[number].room, int(np.count_nonzero(profile[number].requests_by_key)))
    return pinned


def hit_curve(
    workload: Workload,
    policy: Policy,
    *,
    contract: str = "atomic",
    io_split: int = 4,
    progress: Callable[[int, int], None] | None = None,
) -> dict[int, Counts]:
    """The counts of every bank size, by slots per layer, from the smallest for which one pass is exact.

    progress: called after each layer with the number done and the total.
    Raises BadInput for a policy whose curve needs more than one pass under the contract.
    """
    if not one_pass_policy(policy, contract):
        raise Unsupported(
            f"policy {policy.spec} has no one-pass curve under the contract {contract}; lru has one under protected "
            "and atomic, min under atomic, static under all but sequential; others: `sim sweep --bank-step 1`, or a "
            "sample of the layers (`--sample 0.25`)"
        )
    profile = workload.profile(policy).pools
    curves = []
    for pool, seen in zip(workload.layer_pools, profile, strict=True):
        curves.append(pool_curve(pool, policy, seen))
        if progress is not None:
            progress(len(curves), len(profile))
    return counts_by_size(workload, policy, curves, contract=contract, io_split=io_split)


def counts_by_size(
    workload: Workload, policy: Policy, curves: list[PoolCurve], *, contract: str, io_split: int
) -> dict[int, Counts]:
    """The counts from the curves of all layers, by slots per layer, from the smallest for which they are exact."""
    counts, every = {}, range(len(curves))
    for slots in range(max(curve.smallest for curve in curves), max(workload.n_experts) + 1):
        setup = Setup(Bank(slots=slots), policy, contract, io_split=io_split)
        banks = capacities(workload, setup)
        table = np.array([curve.counts(bank.room) for curve, bank in zip(curves, banks, strict=True)])
        counts[slots] = build_counts(workload, setup, banks, table, pinned_experts(workload, setup, banks, every))
    return counts


def round_sizes(sizes: Sequence[int]) -> list[int]:
    """The first and last of consecutive sizes, and round sizes between them: multiples of a power of two."""
    every = 1
    while len(sizes) > MOST_SHOWN * every:
        every *= 2
    return [size for size in sizes if size in (sizes[0], sizes[-1]) or size % every == 0]
