"""The columns that the replay loops count in."""

from __future__ import annotations

CALLS = 0
REFS = 1
REQUESTS = 2
HITS = 3
MISSES = 4
COLD = 5
EVICTIONS = 6
ALIASED = 7
FULL_HIT_CALLS = 8
BYPASSED = 9
PREFETCH_CALLS = 10
PREFETCH_REQUESTS = 11
PREFETCH_ISSUED = 12
PREFETCH_USEFUL = 13
PREFETCH_WASTED = 14
PREFETCH_LATE = 15
PREDICTED = 16
PREDICTED_RIGHT = 17
MINOR = 18
N_COLUMNS = 19

# The columns of one call in the install stream: some of the above, in this order.
STREAM = (REQUESTS, HITS, MISSES, COLD, EVICTIONS, ALIASED, BYPASSED, MINOR)
