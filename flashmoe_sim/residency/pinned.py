"""The replay loop of policies whose residents never change; it is the same under every contract."""

from __future__ import annotations

from typing import Any

import numpy as np

from flashmoe_sim._jit import jit
from flashmoe_sim.residency.served import Served, add_call


@jit
def replay(key: Any, offset: Any, row: Any, pinned: Any, seen: Any, repeats: bool, counts: Any, recording: Any) -> None:
    """Count one pool against the pinned keys, bool [keys].

    seen: i64 [keys], -1. repeats: whether a repeated reference of a call is a request of its own (contract
    `sequential`). The other arguments are as for the deferred loop.
    """
    out_hit = recording.hit
    for call in range(len(offset) - 1):
        n, hits = 0, 0
        for r in range(np.uint64(offset[call]), np.uint64(offset[call + 1])):  # unsigned: no test for an index below 0
            k = key[r]
            if len(out_hit):
                out_hit[r] = pinned[k]
            if repeats or seen[k] != call:
                seen[k] = call
                n += 1
                hits += pinned[k]
        served = Served(n, hits, n - hits, 0, 0, 0, n - hits, 0)
        add_call(counts, recording.calls, row[call], call, offset[call + 1] - offset[call], served)
