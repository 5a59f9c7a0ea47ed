"""What the replay loops share: counting a call, checking a victim, and the order of visits."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from flashmoe_sim._jit import inlined, jit
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


# A mark that blocks no slot; of the type of other marks, since numba would compile a copy for a Python constant.
NO_MARK: Any = np.int64(-1)

FINE, NO_SLOT, OUT_OF_RANGE, EMPTY, BLOCKED, WITHHELD = range(6)

EXPECTED = {
    OUT_OF_RANGE: "the number of a slot, from 0 to len(slot_key) - 1",
    EMPTY: "a slot that holds an expert (slot_key[slot] >= 0), not an empty one",
    BLOCKED: "a slot that the call does not need (blocked[slot] != mark)",
    WITHHELD: "a slot, since some may be evicted (slot_key[slot] >= 0 and blocked[slot] != mark)",
}


@inlined
def fault_of(slot: int, slot_key: Any, blocked: Any, mark: int) -> int:
    """What is wrong with the slot returned for these arguments of `choose_victim`: FINE or a key of EXPECTED."""
    if slot == -1:
        return _fault_of_none(slot_key, blocked, mark)  # type: ignore[no-any-return]
    if slot < 0 or slot >= len(slot_key):
        return OUT_OF_RANGE
    if slot_key[slot] < 0:
        return EMPTY
    return BLOCKED if blocked[slot] == mark else FINE


@jit
def _fault_of_none(slot_key: Any, blocked: Any, mark: int) -> int:
    for slot in range(len(slot_key)):
        if slot_key[slot] >= 0 and blocked[slot] != mark:
            return WITHHELD
    return FINE


FIRST, LAST, HITS_FIRST, REVERSE, HITS_FIRST_SORTED = 0, 1, 2, 3, 4  # places in policies.base.STAMPS


@jit
def visit_order(stamp: int, key: Any, begin: int, end: int, key_slot: Any, seen: Any, mark: int, visit: Any) -> int:
    """Write the references to visit into `visit`, i64 [keys], and return how many: the distinct keys of the call.

    seen: i64 [keys], scratch for this function only; `mark` must be a new number in each call.
    """
    n = 0
    if stamp in (LAST, REVERSE):
        for r in range(end - 1, begin - 1, -1):
            if seen[key[r]] != mark:
                seen[key[r]] = mark
                visit[n] = r
                n += 1
        for i in range(n // 2 if stamp == LAST else 0):
            visit[i], visit[n - 1 - i] = visit[n - 1 - i], visit[i]
        return n
    for missed in range(2):
        first = n
        for r in range(begin, end):
            if (key_slot[key[r]] < 0) == (missed == 1) and seen[key[r]] != mark:
                seen[key[r]] = mark
                place = n
                while stamp == HITS_FIRST_SORTED and missed and place > first and key[visit[place - 1]] > key[r]:
                    visit[place] = visit[place - 1]
                    place -= 1
                visit[place] = r
                n += 1
    return n
