"""Multi-queue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from flashmoe_sim._jit import inlined
from flashmoe_sim.parameters import INT32, Limits
from flashmoe_sim.policies._queue import move_to_newest, new_queues, oldest, put_newest, take_out
from flashmoe_sim.policies._regions import forget, remember
from flashmoe_sim.policies.base import EvictingPolicy, PoolShape, State, by_name

QUEUES = 8
HISTORY = 4
NO_EXPIRY = np.iinfo(np.int64).max
LIFE_TIME, SOONEST = 0, 1


@inlined
def demote(state: Any, now: int) -> None:
    """In every list but the lowest, move the oldest expert one list down if it has expired."""
    link, expires, time = state[0], state[1], state[5]
    slots = len(expires)
    soonest = NO_EXPIRY
    for end in range(slots + 1, slots + QUEUES):
        first = link[1, end]
        if first != end and expires[first] < now:
            move_to_newest(link, first, end - 1)
            expires[first] = now + time[LIFE_TIME]
            soonest = min(soonest, expires[first])
            first = link[1, end]
        if first != end:
            soonest = min(soonest, expires[first])
    time[SOONEST] = soonest


@inlined
def use(state: Any, slot: int, key: int, now: int) -> None:
    """Count a use and put `slot`, which is in no list, into its list."""
    link, expires, count, _, _, time = state
    count[key] += 1
    queue = 0
    for level in range(1, QUEUES):
        queue += count[key] >> level > 0
    put_newest(link, slot, len(expires) + queue)
    expires[slot] = now + time[LIFE_TIME]
    if queue:
        time[SOONEST] = min(time[SOONEST], expires[slot])


def on_miss(state: Any, key: int, now: int) -> None:
    count, history, history_size = state[2], state[3], state[4]
    if now > state[5][SOONEST]:
        demote(state, now)
    if not forget(history, history_size, key):
        count[key] = 0


def on_hit(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    if now > state[5][SOONEST]:
        demote(state, now)
    take_out(state[0], slot)
    use(state, slot, key, now)


def on_install(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    use(state, slot, key, now)


def choose_victim(state: Any, slot_key: Any, blocked: Any, mark: int) -> int:
    link = state[0]
    for end in range(link.shape[1] - QUEUES, link.shape[1]):
        victim = oldest(link, end, slot_key, blocked, mark)
        if victim >= 0:
            return victim  # type: ignore[no-any-return]
    return -1


def on_evict(state: Any, slot: int, key: int) -> None:
    take_out(state[0], slot)
    remember(state[3], state[4], key)


@dataclass(frozen=True)
class Mq(EvictingPolicy):
    """Evict the least recently used expert of the lowest of eight lists; more uses mean a higher list (multi-queue).

    The n-th use of an expert puts it at the recent end of list floor(log2 n), of list 7 at most. Before each request in
    the pool, the oldest expert of every list but the lowest is checked: if it entered the list more than `life_time`
    requests ago, it moves to the recent end of the list below, for another `life_time`. The victim is the oldest
    evictable expert in the lowest list that has one. Counts are kept while an expert is resident or among the last
    evicted, four times as many as the bank has slots; an expert evicted earlier starts again.

    life_time: requests until an unused expert drops a list; 0: twice the slots of the bank. The paper fits it to the
        trace while it runs. Of life times from a half to sixteen bank sizes, one and two missed least on the bundled
        traces.
    """

    name: ClassVar[str] = "mq"
    source: ClassVar[str] = "Zhou, Philbin and Li, USENIX 2001, Multi-Queue Algorithm"
    kernels: ClassVar[dict[str, Any]] = by_name(on_miss, on_hit, on_install, choose_victim, on_evict)
    limits: ClassVar[Limits] = {"life_time": (0, INT32)}

    life_time: int = 0

    def allocate(self, shape: PoolShape) -> State:
        history_size = np.array([0, HISTORY * shape.capacity], np.int64)
        time = np.array([self.life_time or 2 * shape.capacity, NO_EXPIRY], np.int64)
        return (
            new_queues(shape.slots, queues=QUEUES),
            np.zeros(shape.slots, np.int64),
            np.zeros(shape.keys, np.int64),
            new_queues(shape.keys),
            history_size,
            time,
        )
