"""What one routed call counts, added in one place for all replay loops."""

from __future__ import annotations

from typing import Any, NamedTuple

from flashmoe_sim._jit import inlined
from flashmoe_sim.residency import tally

STREAM = tally.STREAM
UNREAD = 2  # recorded for a reference that missed and, being minor, was not read


class Served(NamedTuple):
    """The result of one call, in the order of tally.STREAM."""

    requests: int
    hits: int
    misses: int
    cold: int
    evictions: int
    aliased: int
    bypassed: int
    minor: int


@inlined
def add_call(counts: Any, recorded: Any, row: int, call: int, references: int, served: Any) -> None:
    """Add a call to its row of `counts`, and record it, unless `recorded` is empty."""
    into = counts[row]
    into[tally.CALLS] += 1
    into[tally.REFS] += references
    into[tally.FULL_HIT_CALLS] += served.misses == 0
    for place in range(len(STREAM)):
        into[STREAM[place]] += served[place]
    if len(recorded):
        for place in range(len(STREAM)):
            recorded[call, place] = served[place]
