"""Checks that a policy's `choose_victim` returned a slot that may be evicted; used by every replay loop."""

from __future__ import annotations

from typing import Any

import numpy as np

from flashmoe_sim._jit import inlined, jit

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
