"""2Q."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from flashmoe_sim.io.errors import OutOfRange
from flashmoe_sim.policies._queue import move_to_newest, new_queues, oldest, put_newest, take_out
from flashmoe_sim.policies._regions import HELD, ROOM, check_share, forget, remember, slots_of
from flashmoe_sim.policies.base import EvictingPolicy, PoolShape, State, by_name

RETURNS, INSTALLED = 2, 3  # in the sizes of A1out: whether the last missed expert was there, and is installed


def on_miss(state: Any, key: int, now: int) -> None:
    out, out_size = state[3], state[4]
    out_size[RETURNS] = forget(out, out_size, key)
    out_size[INSTALLED] = 0


def on_hit(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    link, in_main = state[0], state[1]
    if in_main[slot]:
        move_to_newest(link, slot, link.shape[1] - 1)


def on_install(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    link, in_main, in_size, _, out_size = state
    returns = out_size[RETURNS]
    out_size[INSTALLED] = 1
    in_main[slot] = returns
    in_size[HELD] += 1 - returns
    put_newest(link, slot, link.shape[1] - 2 + returns)


def choose_victim(state: Any, slot_key: Any, blocked: Any, mark: int) -> int:
    link, in_size, out_size = state[0], state[2], state[4]
    a1in, main = link.shape[1] - 2, link.shape[1] - 1
    first, second = (a1in, main) if in_size[HELD] - out_size[INSTALLED] > in_size[ROOM] else (main, a1in)
    victim = oldest(link, first, slot_key, blocked, mark)
    if victim < 0:
        victim = oldest(link, second, slot_key, blocked, mark)
    return victim  # type: ignore[no-any-return]


def on_evict(state: Any, slot: int, key: int) -> None:
    link, in_main, in_size, out, out_size = state
    take_out(link, slot)
    if not in_main[slot]:
        in_size[HELD] -= 1
        remember(out, out_size, key)


@dataclass(frozen=True)
class TwoQ(EvictingPolicy):
    """Evict the oldest newcomer; an expert missed again after it left the newcomers' queue enters an LRU list.

    A new expert enters the queue A1in, where hits move nothing. When it leaves A1in, its key is remembered in the queue
    A1out. If it is missed while remembered, it leaves A1out and enters the list Am, ordered by last use. The victim is
    the oldest in A1in if that has more than its share, not counting a newcomer that a contract installs before it asks
    for the victim, else the least recently used in Am. If that list has no evictable expert, the victim comes from the
    other one. Whatever leaves A1in is remembered; what leaves Am is not. A missed key is forgotten before its victim is
    remembered, so that the victim cannot push it out of A1out.

    a1in: share of the bank for A1in. The slots are rounded down: at least one, at most all but one.
    a1out: keys that A1out remembers, in bank sizes; rounded down, but at least one.
    """

    name: ClassVar[str] = "2q"
    source: ClassVar[str] = "Johnson and Shasha, VLDB 1994, the full version"
    kernels: ClassVar[dict[str, Any]] = by_name(on_miss, on_hit, on_install, choose_victim, on_evict)

    a1in: float = 0.25
    a1out: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share(self.name, "a1in", self.a1in)
        if not self.a1out > 0:
            raise OutOfRange(f"policy 2q: a1out={self.a1out} is not a number of bank sizes above 0")

    def allocate(self, shape: PoolShape) -> State:
        in_main = np.zeros(shape.slots, np.uint8)
        in_size = np.array([0, slots_of(self.a1in, shape.capacity)], np.int64)
        remembered = max(int(min(self.a1out * shape.capacity, shape.keys)), 1)
        out_size = np.array([0, remembered, 0, 0], np.int64)
        return new_queues(shape.slots, queues=2), in_main, in_size, new_queues(shape.keys), out_size
