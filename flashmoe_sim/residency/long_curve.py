"""The exact counts of every bank size of a trace that is read in chunks: LRU in one reading, min in two."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

import numpy as np

from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.policies.base import Policy
from flashmoe_sim.residency import one_pass
from flashmoe_sim.residency.counts import Counts
from flashmoe_sim.residency.curve import PoolCurve, counts_by_size, empty_list, first_ranks, one_pass_policy
from flashmoe_sim.residency.long import each_chunk, fit_head, totals_of
from flashmoe_sim.residency.next_uses import NextUses, scratch_file
from flashmoe_sim.residency.pool import Pool
from flashmoe_sim.trace.chunk import LongTrace


def hit_curve_in_chunks(
    trace: LongTrace,
    policy: Policy,
    *,
    contract: str = "atomic",
    io_split: int = 4,
    geometry: ModelGeometry | None = None,
) -> dict[int, Counts]:
    """What `hit_curve` counts, for LRU and min. For min there is another reading before, and a temporary file.

    Raises BadInput for another policy, what `hit_curve` raises it for, and for a trace that changes between readings.
    """
    if policy.textbook not in LISTS or not one_pass_policy(policy, contract):
        raise BadInput(
            f"policy {policy.spec} has no curve in chunks under the contract {contract}; lru has one under protected "
            "and atomic, min under atomic: for others read the whole trace, or a part (`sim trace cut`)"
        )
    head = fit_head(trace.head, geometry)
    lists = [LISTS[policy.textbook](pool) for pool in head.layer_pools]
    unions, tokens = np.zeros(0, np.int64), np.zeros(len(lists), np.int64)
    with ExitStack() as stack:
        uses = []
        if policy.textbook == "min":
            uses.append(NextUses(head, "layer", each_chunk(trace, head), stack.enter_context(scratch_file())))
        for calls in each_chunk(trace, head, uses):
            for pool, one in zip(calls.layer_pools, lists, strict=True):
                if len(pool.call):
                    one.add(pool)
            unions, tokens = totals_of(calls, "layer", unions, tokens)
    counts = counts_by_size(head, policy, [one.curve() for one in lists], contract=contract, io_split=io_split)
    return {slots: replace(one, unions=unions, tokens=int(tokens.max())) for slots, one in counts.items()}


class _LruList:
    """The list of one layer's keys by last use, and what was counted with it."""

    def __init__(self, pool: Pool) -> None:
        self.rank = first_ranks(pool.keys)
        self.depths, self.deepest = np.zeros((2, pool.keys + 1), np.int64)
        self.calls = self.refs = self.distinct = self.largest = 0

    def add(self, pool: Pool) -> None:
        """Take the next calls of the layer."""
        self.distinct = one_pass.lru(pool.key, pool.offset, self.distinct, self.rank, self.depths, self.deepest)
        self.calls += len(pool.call)
        self.refs += pool.refs
        self.largest = max(self.largest, pool.largest_call)

    def curve(self) -> PoolCurve:
        """What a pass over all of the layer's calls gives."""
        return PoolCurve(self.calls, self.refs, self.depths, self.deepest, None, self.distinct, self.largest)


class _MinList:
    """The list of one layer's keys by next use, and what was counted with it."""

    def __init__(self, pool: Pool) -> None:
        self.next_use = empty_list(pool.keys)
        self.depths, self.declined, self.deepest = np.zeros((3, pool.keys + 1), np.int64)
        self.calls = self.refs = self.distinct = 0

    def add(self, pool: Pool) -> None:
        """Take the next calls of the layer."""
        counted = (self.depths, self.declined, self.deepest)
        self.distinct = one_pass.min_bypass(
            pool.key, pool.offset, self.refs, pool.next_call, self.distinct, self.next_use, *counted
        )
        self.calls += len(pool.call)
        self.refs += pool.refs

    def curve(self) -> PoolCurve:
        """What a pass over all of the layer's calls gives."""
        return PoolCurve(self.calls, self.refs, self.depths, self.deepest, self.declined, self.distinct, 1)


LISTS: dict[str, type[_LruList | _MinList]] = {"lru": _LruList, "min": _MinList}
