"""LRU in banks of fixed slots without the general loop of `runtime` and `protected`: only counts and contents."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.policies.base import STAMPS, EvictingPolicy
from flashmoe_sim.prefetchers.none import NoPrefetch
from flashmoe_sim.residency import last_uses
from flashmoe_sim.residency.pool import Pool
from flashmoe_sim.residency.setup import Setup


def is_plain_lru(setup: Setup) -> bool:
    """Whether a setup is LRU under a contract with fixed slots, stamped by first reference, with nothing read ahead."""
    if not isinstance(setup.policy, EvictingPolicy) or not isinstance(setup.prefetch, NoPrefetch):
        return False
    return setup.fixed_slots and setup.policy.textbook == "lru" and setup.policy.stamp == STAMPS[0]


def replay_sizes(
    pool: Pool, contract: str, rooms: NDArray[np.int64], counts: NDArray[np.int64]
) -> list[NDArray[np.int32]]:
    """Replay a pool in empty banks of several sizes; return the final resident keys of each, i32, ascending.

    rooms: i64 [banks], slots, each at least the pool's largest call. counts: i64 [banks, layers, tally.N_COLUMNS],
    added to.
    """
    contents = []
    for begin in range(0, len(rooms), last_uses.MOST_SIZES):
        some = slice(begin, begin + last_uses.MOST_SIZES)
        resident = np.zeros(pool.keys, np.uint64)
        last_uses.lru(pool.key, pool.offset, pool.row, rooms[some], contract == "protected", resident, counts[some])
        bits = [np.uint64(1 << bank) for bank in range(len(rooms[some]))]
        contents += [np.flatnonzero(resident & bit).astype(np.int32) for bit in bits]
    return contents
