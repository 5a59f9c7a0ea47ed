"""The list of ds4 on CUDA and of FreeToken: an LRU in which all experts of a routed call were used at the same time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from flashmoe_sim.policies._queue import move_to_newest, new_queues, oldest
from flashmoe_sim.policies.base import EvictingPolicy, PoolShape, State, by_name


def on_call(state: Any, step: int) -> None:
    _, _, count = state
    count[0] += 1


def on_use(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    link, call, count = state
    call[slot] = count[0]
    move_to_newest(link, slot, link.shape[1] - 1)


def choose_victim(state: Any, slot_key: Any, blocked: Any, mark: int) -> int:
    link, call, _ = state
    end = link.shape[1] - 1
    victim = oldest(link, end, slot_key, blocked, mark)
    if victim < 0:
        return victim  # type: ignore[no-any-return]
    first, slot = call[victim], np.int64(link[1, victim])
    while slot != end and call[slot] == first:
        if slot < victim and blocked[slot] != mark and slot_key[slot] >= 0:
            victim = slot
        slot = np.int64(link[1, slot])
    return victim  # type: ignore[no-any-return]


@dataclass(frozen=True)
class CallLru(EvictingPolicy):
    """Evict the expert whose last routed call is longest ago, of those of one call the one in the lowest slot.

    The experts of a call stand together in the queue, so that the equal ones follow the oldest.
    """

    name: ClassVar[str] = "call-lru"
    ties: ClassVar[str] = "lower slot"
    source: ClassVar[str] = (
        "antirez/ds4 00520ab68: ds4_cuda.cu, cuda_stream_selected_cache_begin_load(); FlashML-org/FreeToken 0ab982f1: "
        "python/freetoken/moe/offload_kernels.py"
    )
    kernels: ClassVar[dict[str, Any]] = by_name(on_call, on_use, choose_victim)

    def allocate(self, shape: PoolShape) -> State:
        return new_queues(shape.slots), np.zeros(shape.slots, np.int64), np.zeros(1, np.int64)
