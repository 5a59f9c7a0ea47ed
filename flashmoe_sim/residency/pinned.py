"""The replay loop of policies whose residents never change; it is the same under every contract."""

from __future__ import annotations

from typing import Any

import numpy as np

from flashmoe_sim._jit import jit
from flashmoe_sim.residency.served import Served, add_call


@jit
def replay(
    expert: Any,
    offset: Any,
    row: Any,
    first_key: Any,
    pinned: Any,
    seen: Any,
    repeats: bool,
    counts: Any,
    calls: Any,
    hit: Any,
) -> None:
    """Count the calls of a trace against the pinned keys, bool [keys].

    first_key: i64 [layers], the key of each layer's expert 0. seen: i64 [keys], -1. repeats: whether a repeated
    reference of a call is a request of its own (contract `sequential`). counts: i64 [layers, tally.N_COLUMNS], which
    grow. calls, hit: what is recorded of a call and a reference, as for the deferred loop; empty if not wanted.
    """
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
