"""Regions of a bank with rules of their own, and the keys a policy remembers after they left the bank.

A ghost list is a queue of keys in the links of `_queue.py`, in which a forgotten key is linked to itself. `size[HELD]`
is the number of remembered keys and `size[ROOM]` the most there may be.
"""

from __future__ import annotations

from typing import Any

from flashmoe_sim._jit import inlined
from flashmoe_sim.io.errors import OutOfRange
from flashmoe_sim.policies._queue import put_newest, take_out

HELD, ROOM = 0, 1


def slots_of(share: float, capacity: int) -> int:
    """The slots of a region: its share rounded down, at least one, and at most all but one if there are two or more."""
    return max(min(int(share * capacity), capacity - 1), 1)


def check_share(policy: str, name: str, share: float) -> None:
    """Raise BadInput if `share` is not a share of a bank."""
    if not 0 < share < 1:
        raise OutOfRange(f"policy {policy}: {name}={share} is not a share of the bank, between 0 and 1")


@inlined
def remember(ghost: Any, size: Any, key: int) -> None:
    """Remember `key`, which is not remembered yet; forget the oldest key if there is no room."""
    end = ghost.shape[1] - 1
    put_newest(ghost, key, end)
    size[HELD] += 1
    if size[HELD] > size[ROOM]:
        forget(ghost, size, ghost[1, end])


@inlined
def forget(ghost: Any, size: Any, key: int) -> bool:
    """Forget `key`; return whether it was remembered."""
    if ghost[1, key] == key:
        return False
    take_out(ghost, key)
    ghost[0, key] = key
    ghost[1, key] = key
    size[HELD] -= 1
    return True
