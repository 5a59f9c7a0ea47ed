"""S3-FIFO."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from flashmoe_sim._jit import inlined
from flashmoe_sim.io.errors import OutOfRange
from flashmoe_sim.policies._queue import move_to_newest, new_queues, put_newest, take_out
from flashmoe_sim.policies._regions import HELD, ROOM, check_share, forget, remember, slots_of
from flashmoe_sim.policies.base import EvictingPolicy, PoolShape, State, by_name

MOST_COUNTED = 3
PROMOTED_FROM = 2
# In the small queue's sizes: entries so far, how many of the newest count no hits, entries before the call, and how
# many experts of the call are in the queue.
ENTRIES, SKIPPED, BEFORE, NEWCOMERS = 2, 3, 4, 5
RETURNS, INSTALLED = 2, 3  # in the ghost list's sizes: whether the last missed expert was there, and is installed


def on_call(state: Any, step: int) -> None:
    size = state[3]
    size[BEFORE] = size[ENTRIES]
    size[NEWCOMERS] = 0


def on_miss(state: Any, key: int, now: int) -> None:
    ghost, ghost_size = state[4], state[5]
    ghost_size[RETURNS] = forget(ghost, ghost_size, key)
    ghost_size[INSTALLED] = 0


def on_hit(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    in_main, hits, size, entry = state[1], state[2], state[3], state[6]
    if in_main[slot] or size[ENTRIES] - entry[slot] >= size[SKIPPED]:
        hits[slot] = min(hits[slot] + 1, MOST_COUNTED)


def on_install(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    link, in_main, hits, size, _, ghost_size, entry = state
    returns = ghost_size[RETURNS]
    ghost_size[INSTALLED] = 1
    hits[slot] = 0
    in_main[slot] = returns
    size[HELD] += 1 - returns
    size[ENTRIES] += 1 - returns
    size[NEWCOMERS] += 1 - returns
    entry[slot] = size[ENTRIES]
    put_newest(link, slot, link.shape[1] - 2 + returns)


@inlined
def from_small(state: Any, blocked: Any, mark: int) -> int:
    """The first slot of the small queue without enough hits, or -1; slots before it move to the main queue."""
    link, in_main, hits, size = state[0], state[1], state[2], state[3]
    small, main = link.shape[1] - 2, link.shape[1] - 1
    slot = link[1, small]
    while slot != small:
        newer = link[1, slot]
        if blocked[slot] != mark:
            if hits[slot] < PROMOTED_FROM:
                return np.int64(slot)  # type: ignore[return-value]
            hits[slot] = 0
            in_main[slot] = 1
            size[HELD] -= 1
            move_to_newest(link, slot, main)
        slot = newer
    return -1


@inlined
def from_main(state: Any, blocked: Any, mark: int) -> int:
    """The first slot of the main queue without hits left, or -1; slots before it lose one hit and go round again."""
    link, hits = state[0], state[2]
    main = link.shape[1] - 1
    slot = link[1, main]
    while slot != main:
        newer = link[1, slot]
        if blocked[slot] != mark:
            if hits[slot] == 0:
                return np.int64(slot)  # type: ignore[return-value]
            hits[slot] -= 1
            move_to_newest(link, slot, main)
            if newer == main:
                newer = slot
        slot = newer
    return -1


def choose_victim(state: Any, slot_key: Any, blocked: Any, mark: int) -> int:
    size, ghost_size = state[3], state[5]
    victim = -1
    if size[HELD] - ghost_size[INSTALLED] * size[NEWCOMERS] < size[ROOM]:
        victim = from_main(state, blocked, mark)
    if victim < 0:
        victim = from_small(state, blocked, mark)
    if victim < 0:
        victim = from_main(state, blocked, mark)
    return victim


def on_evict(state: Any, slot: int, key: int) -> None:
    link, in_main, _, size, ghost, ghost_size, entry = state
    take_out(link, slot)
    if not in_main[slot]:
        size[HELD] -= 1
        size[NEWCOMERS] -= entry[slot] > size[BEFORE]
        remember(ghost, ghost_size, key)


@dataclass(frozen=True)
class S3Fifo(EvictingPolicy):
    """Evict from a small queue an expert hit less than twice, else from a main queue one with no hits left (S3-FIFO).

    A new expert enters the small queue, or the main one if its key is on the ghost list, which it then leaves. Hits are
    counted from then on, up to three. If the small queue has its share or more, not counting the newcomers there that a
    contract installs before it asks for a victim, its experts are checked from the oldest on: one hit twice or more
    moves to the main queue as the newest, with its count reset to 0; the first with fewer hits is evicted and its key
    goes on the ghost list. If that finds no victim, or the small queue has less than its share, the main queue is
    checked from the oldest on: an expert with hits left loses one and becomes the newest; the first without is evicted
    and not remembered. If the main queue has no evictable expert, the small one is next. Residents that may not be
    evicted are skipped and keep their place and count. The ghost list remembers as many keys as the main queue has
    slots.

    In Algorithm 1, a promotion that overfills the main queue also evicts from it at once. Here, as in libCacheSim, each
    choice of a victim evicts one expert, and the main queue is next when another is needed.

    small: share of the bank for the small queue. The slots are rounded down: at least one, at most all but one.
    skip: share of the small queue's slots, rounded down. Hits on an expert count only once that many others have
        entered the small queue after it, since a hit right after a miss says little about later use. From S4-FIFO
        (OSDI 2026), without its other four parameters.
    """

    name: ClassVar[str] = "s3fifo"
    source: ClassVar[str] = "Yang et al., SOSP 2023, Algorithm 1; skip: libCacheSim #335"
    kernels: ClassVar[dict[str, Any]] = by_name(on_call, on_miss, on_hit, on_install, choose_victim, on_evict)

    small: float = 0.1
    skip: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share(self.name, "small", self.small)
        if not 0 <= self.skip <= 1:
            raise OutOfRange(f"policy {self.name}: skip={self.skip} is not a share of the small queue, from 0 to 1")

    def allocate(self, shape: PoolShape) -> State:
        small = slots_of(self.small, shape.capacity)
        size = np.array([0, small, 0, int(self.skip * small), 0, 0], np.int64)
        ghost_size = np.array([0, max(shape.capacity - small, 1), 0, 0], np.int64)
        in_main, hits = np.zeros((2, shape.slots), np.uint8)
        entry = np.zeros(shape.slots, np.int64)
        return new_queues(shape.slots, queues=2), in_main, hits, size, new_queues(shape.keys), ghost_size, entry
