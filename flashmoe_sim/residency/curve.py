"""The exact counts of every bank size in one pass over a layer's calls, for the policies that allow it.

LRU and min keep the inclusion property if each call is served as a whole: the residents of a bank of C slots are the
first C keys of one list. A request then hits in every bank larger than its key's place in that list.

Source: Mattson et al. 1970 (stack algorithms), extended here from single references to whole calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim._jit import inlined, jit
from flashmoe_sim.io.errors import Unsupported
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.base import NEVER, Policy
from flashmoe_sim.residency import tally
from flashmoe_sim.residency.capacity import Capacity, capacities
from flashmoe_sim.residency.counts import Counts
from flashmoe_sim.residency.pool import Pool
from flashmoe_sim.residency.replay import build_counts
from flashmoe_sim.residency.workload import Setup, Workload

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
        deepest_calls(pool.key, pool.offset, rank, deepest)
        return PoolCurve(len(pool.call), len(pool.key), depths, deepest, declined=depths, distinct=0, smallest=1)
    if policy.textbook == "lru":
        distinct = lru(pool.key, pool.offset, 0, first_ranks(pool.keys), depths, deepest)
        smallest = pool.largest_call
        return PoolCurve(len(pool.call), len(pool.key), depths, deepest, None, distinct, smallest)
    empty = np.full(pool.keys + 1, -1, np.int32)  # all gaps, one more than there are keys
    distinct = min_bypass(pool.key, pool.offset, pool.next_call, empty, counted)
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


I64 = NDArray[np.int64]
LANES = np.uint64(8)
ONE = np.uint64(1)


@inlined
def longest_call(offset: Any) -> int:
    """References of the longest call; numba's array functions would take a second to compile, so kernels loop."""
    longest = 0
    for call in range(len(offset) - 1):
        longest = max(longest, offset[call + 1] - offset[call])
    return longest


def lru(key: NDArray[np.uint32], offset: I64, distinct: int, rank: NDArray[Any], depths: I64, deepest: I64) -> int:
    """Count LRU depths, with a call's experts stamped in order of first reference; return how many keys occurred.

    distinct: how many had occurred before, in earlier chunks of the calls.
    rank: u8 or u16 [keys], a permutation of 0..keys-1; becomes each key's place in the list, the most recent first.
    depths: i64 [keys + 1], requests by their key's place when the call began, `keys` for a first request.
    deepest: i64 [keys + 1], calls by their deepest request.
    """
    keys = len(rank)
    seen, scratch = np.full(keys, -1, np.int32), np.zeros((3, keys + int(LANES)), rank.dtype)
    now: int = _lru(key, offset, distinct, rank, depths, deepest, seen, scratch)
    return now


@jit
def _lru(key: Any, offset: Any, distinct: int, rank: Any, depths: Any, deepest: Any, seen: Any, scratch: Any) -> int:
    """seen: i32 [keys], -1. scratch: of the type of `rank`, [3, keys + LANES], zeros."""
    member, at, before = scratch[0], scratch[1], scratch[2]
    keys = len(rank)
    for call in range(len(offset) - 1):
        n, worst, known = np.uint64(0), 0, distinct
        for r in range(np.uint64(offset[call]), np.uint64(offset[call + 1])):
            k = key[r]
            if seen[k] == call:
                continue
            seen[k] = call
            member[n] = k
            at[n] = rank[k]
            n += ONE
            depth: Any = np.int64(rank[k])
            if depth >= known:  # keys that never occurred are behind all others
                depth = keys
                distinct += 1
            depths[depth] += 1
            worst = max(worst, depth)
        deepest[worst] += 1
        for i in range(n, n + LANES):
            at[i] = 0
        # Every key moves down by the number of the call's keys that were below it. Eight at a time stay in registers
        # while the loop over all keys runs as vector instructions.
        if n > LANES:
            for k in range(keys):
                before[k] = rank[k]
        for base in range(np.uint64(0), n, LANES):
            a, b, c, d = at[base], at[base + 1], at[base + 2], at[base + 3]
            e, f, g, h = at[base + 4], at[base + 5], at[base + 6], at[base + 7]
            if n <= LANES:
                for k in range(keys):
                    p = rank[k]
                    rank[k] = p + (a > p) + (b > p) + (c > p) + (d > p) + (e > p) + (f > p) + (g > p) + (h > p)
            else:
                for k in range(keys):
                    p = before[k]
                    rank[k] += (a > p) + (b > p) + (c > p) + (d > p) + (e > p) + (f > p) + (g > p) + (h > p)
        for i in range(n):
            rank[member[i]] = n - ONE - i
    return distinct


@jit
def deepest_calls(key: Any, offset: Any, rank: Any, deepest: Any) -> None:
    """Count, in i64 [keys + 1], the calls by the largest `rank`, u16 [keys], that they ask for."""
    for call in range(len(offset) - 1):
        worst = np.uint16(0)
        for r in range(np.uint64(offset[call]), np.uint64(offset[call + 1])):
            worst = max(worst, rank[key[r]])
        deepest[worst] += 1


def min_bypass(
    key: NDArray[np.uint32],
    offset: I64,
    upcoming: NDArray[np.int32],
    next_use: NDArray[np.int32],
    counted: I64,
) -> int:
    """Count the depths of min with bypass under the contract `atomic`; return how many keys occurred.

    upcoming: i32 [references], where the next call that requests the key does so, or NEVER.
    next_use: i32 [keys + 1], the list; -1 at first, and always behind the last.
    counted: i64 [3, keys + 1], requests by depth and calls by their deepest request, as for `lru`, then requests by the
    largest bank, in slots, that misses them and does not admit them.

    The list holds only next uses: the keys a call requests are those with a next use before the call's end, and they
    leave gaps in the list. After the call, a bank keeps the nearest of its old next uses and all new ones. So every new
    next use is carried down the list: each place keeps the nearer of its own and the carried one, and the first gap
    takes what is left. If they are carried in ascending order, none is displaced by a later one, and the places above
    it stay as they are.
    """
    largest = int(np.diff(offset).max(initial=0))
    seen, uses = np.full(len(next_use) - 1, -1, np.int32), np.zeros(largest, np.int32)
    of_call = np.zeros((4, largest), np.uint32)
    held: int = _min_bypass(key, offset, upcoming, next_use, counted, seen, uses, of_call)
    return held


@jit
def _min_bypass(
    key: Any, offset: Any, upcoming: Any, next_use: Any, counted: Any, seen: Any, uses: Any, of_call: Any
) -> int:
    """seen: i32 [keys], -1. uses: i32 [requests], and of_call: u32 [4, requests], scratch for the longest call."""
    depths, deepest, declined = counted[0], counted[1], counted[2]
    # request_of is by reference of the call, the others by its request.
    request_of, ascending, found, settled = of_call[0], of_call[1], of_call[2], of_call[3]
    keys = len(next_use) - 1
    now, held = 0, 0
    for call in range(len(offset) - 1):
        begin, end = np.uint64(offset[call]), np.int32(offset[call + 1])
        n = np.uint64(0)
        for r in range(begin, np.uint64(offset[call + 1])):
            k = key[r]
            if seen[k] == call:
                continue
            seen[k] = call
            now += 1
            uses[n] = upcoming[r] if upcoming[r] != NEVER else NEVER - now
            request_of[r - begin] = n
            found[n] = keys
            n += ONE
        for i in range(n):
            rank = np.uint64(0)
            for j in range(n):
                rank += np.uint64(uses[j] < uses[i])
            ascending[rank] = i
        start = np.uint64(0)
        for turn in range(n):
            i = ascending[turn]
            carried = uses[i]
            place = start
            stood = next_use[place]
            while end <= stood < carried:
                place += ONE
                stood = next_use[place]
            settled[i] = place
            start = place + ONE
            while stood >= end:
                next_use[place] = min(stood, carried)
                carried = max(stood, carried)
                place += ONE
                stood = next_use[place]
            next_use[place] = carried
            if stood >= 0:
                found[request_of[np.uint64(stood) - begin]] = place
            else:
                held += 1
        worst = np.uint32(0)
        for i in range(n):
            depths[found[i]] += 1
            declined[min(found[i], settled[i])] += 1
            worst = max(worst, found[i])
        deepest[worst] += 1
    return held
