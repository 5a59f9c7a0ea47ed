"""A warm start: what a profile uses most is in the bank before the first call."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.policies.base import NEVER, on_call, on_install
from flashmoe_sim.residency.capacity import Capacity
from flashmoe_sim.residency.pool import Pool
from flashmoe_sim.residency.pool_state import LOADED, N_LOADED, NOW, OPENED, USED
from flashmoe_sim.residency.seen import on_miss


def warm_keys(requests_by_key: NDArray[np.int64], bank: Capacity) -> NDArray[np.uint32]:
    """The keys that a profile requests most and that fit the bank together, the least requested first; u32.

    Of equal ones the lower number comes first; a key without a request is left out.
    """
    order = np.argsort(-requests_by_key, kind="stable")
    order = order[requests_by_key[order] > 0]
    fits = np.cumsum(bank.size[order]) <= bank.room
    return order[fits][::-1].astype(np.uint32)


def first_uses(pool: Pool, keys: NDArray[np.uint32]) -> NDArray[np.int32]:
    """The first reference to each key, or NEVER; i32."""
    first = pool.first_reference[keys]
    return np.where(first < pool.refs, first, NEVER).astype(np.int32)


def fill(key: Any, upcoming: Any, step: int, size: Any, held: Any, state: Any) -> None:
    """Install keys in an empty bank, as misses of one call before the first, of its step; nothing is counted.

    What a policy admits is not asked: an engine loads its profile whatever its rule for misses is.
    """
    slot_key, key_slot, carry = held.slot_key, held.key_slot, held.carry
    on_call(state, step, 0, 0)
    for slot in range(len(key)):
        k = key[slot]
        now = slot + 1
        on_miss(state, k, now, upcoming[slot])
        slot_key[slot] = k
        key_slot[k] = slot
        carry[USED] += size[k]
        on_install(state, slot, k, now, upcoming[slot])
    carry[NOW] = len(key)
    carry[OPENED] = len(key)
    carry[N_LOADED] = len(key)
    carry[LOADED] = carry[USED]
