"""The replay of policies whose residents change only between steps."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim._jit import jit
from flashmoe_sim.policies.base import Candidates, ScheduledPolicy
from flashmoe_sim.residency import tally
from flashmoe_sim.residency.ahead import UNUSED
from flashmoe_sim.residency.loops import Served, add_call
from flashmoe_sim.residency.own_rules import Stretches
from flashmoe_sim.residency.stream import ReadAhead
from flashmoe_sim.residency.workload import Workload


def replay(
    workload: Workload,
    policy: ScheduledPolicy,
    candidates: Candidates,
    table: NDArray[np.int64],
    stream: NDArray[np.int32],
    hit: NDArray[np.uint8],
) -> tuple[NDArray[np.bool_], ReadAhead]:
    """Count all layers together; return the final resident keys, bool [keys], and which keys came when.

    An expert that comes in counts as prefetched after its layer's last call, and as useful once it is hit.
    table: i64 [layers, tally.N_COLUMNS]. stream, hit: of each call and reference; empty if not wanted.
    """
    trace = workload.trace
    (pool,) = workload.global_pools
    resident, fresh = np.zeros(pool.keys, np.bool_), np.zeros(pool.keys, np.int64)
    last_call = np.full(len(table), -1, np.int64)
    seen, uses_bank = np.full(pool.keys, -1, np.int64), policy.uses_bank(trace.n_tokens)
    lookups = Lookups(pool.key, pool.offset, pool.row, uses_bank, resident, fresh, seen, last_call, stream, hit)
    came = Came(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int32))
    begin, n, stretches = 0, 0, Stretches(policy, trace, candidates)
    for end, after in policy.schedule(trace, pool.key, candidates):
        stretches.check(end, after)
        count(lookups, begin, end, came.used, table)
        came = came.with_room(n, pool.keys)
        n = change(pool.key_row, after, last_call, came, n, resident, fresh, table)
        begin = end
    count(lookups, begin, trace.calls, came.used, table)
    np.add.at(table[:, tally.PREFETCH_WASTED], pool.key_row[fresh != 0], 1)
    key = came.key[:n]
    row = pool.key_row[key]
    expert = key - np.searchsorted(pool.key_row, row).astype(np.int32)
    return resident, ReadAhead.of([ReadAhead(came.moment[:n], row, expert, came.used[:n], np.zeros(n, np.uint8))])


class Came(NamedTuple):
    """What came in, in this order, with room for more.

    moment: i64, the last call of its layer before it. used: i64, the call of its first hit, or UNUSED. key: i32.
    """

    moment: NDArray[np.int64]
    used: NDArray[np.int64]
    key: NDArray[np.int32]

    def with_room(self, n: int, more: int) -> Came:
        """Itself if `more` can follow the first `n`, else a copy with twice the room."""
        if n + more <= len(self.key):
            return self
        room = 2 * (n + more)
        return Came(np.resize(self.moment, room), np.resize(self.used, room), np.resize(self.key, room))


class Lookups(NamedTuple):
    """The calls of all layers, which look up their experts among the residents.

    key, offset, row: of the `Pool`. uses_bank: bool [calls], whether a call finds residents. resident: bool [keys].
    The kernel changes the others. fresh: i64 [keys], for a resident not hit since it came in, its place among all that
    came plus 1; else 0. seen: i64 [keys], the last call that requested each, or -1. last_call: i64 [layers], the last
    call of each, or -1. stream: i32 [calls, len(tally.STREAM)], hit: u8 [references]; empty if not wanted.
    """

    key: NDArray[np.uint32]
    offset: NDArray[np.int64]
    row: NDArray[np.int32]
    uses_bank: NDArray[np.bool_]
    resident: NDArray[np.bool_]
    fresh: NDArray[np.int64]
    seen: NDArray[np.int64]
    last_call: NDArray[np.int64]
    stream: NDArray[np.int32]
    hit: NDArray[np.uint8]


@jit
def count(lookups: Any, begin: int, end: int, used: Any, counts: Any) -> None:
    """Count the calls from `begin` to `end` (exclusive), during which the residents stay the same.

    used: of `Came`, set to the call of the first hit.
    """
    key, offset, row, uses_bank, resident, fresh, seen, last_call, stream, out_hit = lookups
    for call in range(begin, end):
        n, hits = 0, 0
        for r in range(offset[call], offset[call + 1]):
            k = key[r]
            there = uses_bank[call] and resident[k]
            if len(out_hit):
                out_hit[r] = there
            if seen[k] != call:
                seen[k] = call
                n += 1
                hits += there
                if there and fresh[k]:
                    used[fresh[k] - 1] = call
                    fresh[k] = 0
                    counts[row[call], tally.PREFETCH_USEFUL] += 1
        last_call[row[call]] = call
        served = Served(n, hits, n - hits, 0, 0, 0, n - hits, 0)
        add_call(counts, stream, row[call], call, offset[call + 1] - offset[call], served)


@jit
def change(key_row: Any, after: Any, last_call: Any, came: Any, n: int, resident: Any, fresh: Any, counts: Any) -> int:
    """Make `after`, bool [keys], the residents; add what comes in to `came` after its first `n`; return how many then.

    What comes before its layer's first call is not counted.
    key_row: i32 [keys], ascending. last_call: i64 [layers], -1 before a layer's first call.
    """
    latest = -1
    for k in range(len(after)):
        if after[k] == resident[k]:
            continue
        resident[k] = after[k]
        row = key_row[k]
        into = counts[row]
        if fresh[k]:
            fresh[k] = 0
            into[tally.PREFETCH_WASTED] += 1
        if not after[k] or last_call[row] < 0:
            continue
        came.moment[n], came.key[n], came.used[n] = last_call[row], k, UNUSED
        n += 1
        fresh[k] = n
        into[tally.PREFETCH_CALLS] += row != latest
        into[tally.PREFETCH_REQUESTS] += 1
        into[tally.PREFETCH_ISSUED] += 1
        latest = row
    return n


class RoutedCalls(NamedTuple):
    """The calls of a trace as they stand in it. first_key: i64 [layers], the key of each layer's expert 0."""

    expert: NDArray[np.int16]
    offset: NDArray[np.int64]
    row: NDArray[np.int32]
    first_key: NDArray[np.int64]


@jit
def count_pinned(routed: Any, pinned: Any, seen: Any, repeats: bool, counts: Any, calls: Any, hit: Any) -> None:
    """Count the calls of a trace against the pinned keys, bool [keys].

    seen: i64 [keys], -1. repeats: whether a repeated reference of a call is a request of its own (contract
    `sequential`). counts: i64 [layers, tally.N_COLUMNS], which grow. calls, hit: what is recorded of a call and a
    reference, as for the deferred loop; empty if not wanted.
    """
    expert, offset, row, first_key = routed
    for call in range(len(row)):
        n, hits = 0, 0
        before = first_key[row[call]]
        for r in range(np.uint64(offset[call]), np.uint64(offset[call + 1])):  # unsigned: no test for an index below 0
            k = np.uint64(before + expert[r])
            if len(hit):
                hit[r] = pinned[k]
            if repeats or seen[k] != call:
                seen[k] = call
                n += 1
                hits += pinned[k]
        served = Served(n, hits, n - hits, 0, 0, 0, n - hits, 0)
        add_call(counts, calls, row[call], call, offset[call + 1] - offset[call], served)
