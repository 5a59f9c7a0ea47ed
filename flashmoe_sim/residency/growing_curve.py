"""The exact counts of every bank size of LRU along a trace that is being written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from flashmoe_sim.residency import one_pass
from flashmoe_sim.residency.capacity import Capacity
from flashmoe_sim.residency.counts import Counts
from flashmoe_sim.residency.curve import PoolCurve, first_ranks
from flashmoe_sim.residency.growing import totals_of
from flashmoe_sim.residency.pool import Pool
from flashmoe_sim.residency.replay import build_counts
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.residency.workload import Workload


class LruCurve:
    """LRU's lists of keys by last use, one per layer, and with them the counts of banks of any size.

    head: the trace's head, fitted to the model.
    """

    def __init__(self, head: Workload) -> None:
        self.head = head
        self.lists = [_LruList(pool) for pool in head.layer_pools]
        self._unions, self._tokens = np.zeros(0, np.int64), np.zeros(len(self.lists), np.int64)

    def add(self, calls: Workload) -> None:
        """Add the next calls."""
        for pool, one in zip(calls.layer_pools, self.lists, strict=True):
            if len(pool.call):
                one.add(pool)
        self._unions, self._tokens = totals_of(calls, "layer", self._unions, self._tokens)

    @property
    def tokens(self) -> int:
        """Tokens of all calls so far."""
        return int(self._tokens.max())

    def with_totals(self, counts: Counts) -> Counts:
        """The counts with the unions and tokens of all calls so far."""
        return replace(counts, unions=self._unions, tokens=self.tokens)

    def counts(self, setups: Sequence[Setup], banks: Sequence[list[Capacity]]) -> list[Counts | None]:
        """The counts of `replay` for LRU setups under `protected`, over the calls so far; banks: of each setup.

        None for a setup whose replay raises BadInput, since a call requests more experts than its bank holds.
        """
        rooms = np.array([[bank.room for bank in own] for own in banks])
        largest = np.array([one.largest for one in self.lists])
        curves = [one.curve() for one in self.lists]
        tables = np.stack([curve.counts(room) for curve, room in zip(curves, rooms.T, strict=True)], axis=1)
        return [
            self.with_totals(build_counts(self.head, setup, own, table)) if (room >= largest).all() else None
            for setup, own, room, table in zip(setups, banks, rooms, tables, strict=True)
        ]


class _LruList:
    """One layer's list of keys by last use, and the counts made with it."""

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
