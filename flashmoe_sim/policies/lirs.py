"""Low inter-reference recency set.

State: the stack, a queue of keys, oldest first; the queue of slots whose experts are HIR; the queue of keys that are in
the stack but not in the bank, in the order in which they left it; for each key its kind, whether it is in the stack,
and its slot; and counts and limits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from flashmoe_sim._jit import inlined
from flashmoe_sim.io.errors import OutOfRange
from flashmoe_sim.policies._queue import move_to_newest, new_queues, oldest, put_newest, take_out
from flashmoe_sim.policies._regions import check_share, slots_of
from flashmoe_sim.policies.base import EvictingPolicy, PoolShape, State, by_name

UNKNOWN, LIR, HIR, GHOST = range(4)
LIRS, RESIDENT, STACKED, MOST_LIRS, MOST_STACKED = range(5)


def on_hit(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    stack, hirs, ghosts, kind, stacked, slot_of, size = state
    bottom = len(kind)
    if kind[key] == LIR:
        was_lowest = stack[1, bottom] == key
        move_to_newest(stack, key, bottom)
        if was_lowest:
            prune(stack, ghosts, kind, stacked, size)
    elif stacked[key] or size[LIRS] < size[MOST_LIRS]:
        take_out(hirs, slot)
        push(stack, stacked, size, key)
        become_lir(stack, hirs, ghosts, kind, stacked, slot_of, size, key)
    else:
        move_to_newest(hirs, slot, hirs.shape[1] - 1)
        push(stack, stacked, size, key)
        prune(stack, ghosts, kind, stacked, size)
        trim(stack, ghosts, kind, stacked, size)


def on_install(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    stack, hirs, ghosts, kind, stacked, slot_of, size = state
    slot_of[key] = slot
    push(stack, stacked, size, key)
    if kind[key] == GHOST or size[RESIDENT] < size[MOST_LIRS]:
        if kind[key] == GHOST:
            take_out(ghosts, key)
        become_lir(stack, hirs, ghosts, kind, stacked, slot_of, size, key)
    else:
        kind[key] = HIR
        put_newest(hirs, slot, hirs.shape[1] - 1)
        prune(stack, ghosts, kind, stacked, size)
    size[RESIDENT] += 1
    trim(stack, ghosts, kind, stacked, size)


def choose_victim(state: Any, slot_key: Any, blocked: Any, mark: int) -> int:
    stack, hirs, _, kind, _, slot_of, _ = state
    victim = oldest(hirs, hirs.shape[1] - 1, slot_key, blocked, mark)
    if victim < 0:
        bottom = len(kind)
        key = stack[1, bottom]
        while key != bottom and (kind[key] != LIR or blocked[slot_of[key]] == mark):
            key = stack[1, key]
        victim = slot_of[key] if key != bottom else -1
    return victim  # type: ignore[no-any-return]


def on_evict(state: Any, slot: int, key: int) -> None:
    stack, hirs, ghosts, kind, stacked, _, size = state
    size[RESIDENT] -= 1
    if kind[key] == LIR:
        kind[key] = UNKNOWN
        size[LIRS] -= 1
        pull(stack, stacked, size, key)
        prune(stack, ghosts, kind, stacked, size)
        return
    take_out(hirs, slot)
    kind[key] = UNKNOWN
    if stacked[key]:
        kind[key] = GHOST
        put_newest(ghosts, key, ghosts.shape[1] - 1)
        trim(stack, ghosts, kind, stacked, size)


@inlined
def push(stack: Any, stacked: Any, size: Any, key: int) -> None:
    """Move a key to the top of the stack, whether it is in it or not."""
    if stacked[key]:
        take_out(stack, key)
    size[STACKED] += not stacked[key]
    stacked[key] = True
    put_newest(stack, key, len(stacked))


@inlined
def pull(stack: Any, stacked: Any, size: Any, key: int) -> None:
    """Take a key out of the stack, which must hold it."""
    take_out(stack, key)
    stacked[key] = False
    size[STACKED] -= 1


@inlined
def become_lir(stack: Any, hirs: Any, ghosts: Any, kind: Any, stacked: Any, slot_of: Any, size: Any, key: int) -> None:
    """Make a key on top of the stack LIR; if that is one too many, the lowest LIR key leaves the stack as HIR."""
    kind[key] = LIR
    size[LIRS] += 1
    if size[LIRS] > size[MOST_LIRS]:
        lowest = stack[1, len(kind)]
        pull(stack, stacked, size, lowest)
        kind[lowest] = HIR
        size[LIRS] -= 1
        put_newest(hirs, slot_of[lowest], hirs.shape[1] - 1)
    prune(stack, ghosts, kind, stacked, size)


@inlined
def prune(stack: Any, ghosts: Any, kind: Any, stacked: Any, size: Any) -> None:
    """Remove the keys below the lowest LIR key from the stack."""
    bottom = len(kind)
    key = stack[1, bottom]
    while key != bottom and kind[key] != LIR:
        leave(stack, ghosts, kind, stacked, size, key)
        key = stack[1, bottom]


@inlined
def trim(stack: Any, ghosts: Any, kind: Any, stacked: Any, size: Any) -> None:
    """If the stack is too long, forget the keys that left the bank first."""
    end = ghosts.shape[1] - 1
    while size[STACKED] > size[MOST_STACKED] and ghosts[1, end] != end:
        leave(stack, ghosts, kind, stacked, size, ghosts[1, end])


@inlined
def leave(stack: Any, ghosts: Any, kind: Any, stacked: Any, size: Any, key: int) -> None:
    pull(stack, stacked, size, key)
    if kind[key] == GHOST:
        kind[key] = UNKNOWN
        take_out(ghosts, key)


@dataclass(frozen=True)
class Lirs(EvictingPolicy):
    """Keep the experts with the shortest times between uses; a small part of the bank tries out the others (LIRS).

    The stack orders experts by last use. Its LIR experts stay in the bank, which reserves all but a few slots for them;
    the others are HIR. A HIR expert used while it is in the stack, resident or not, was unused for a shorter time than
    the lowest LIR expert, and takes its place: the LIR expert leaves the stack and becomes the newest HIR. All experts
    below the lowest LIR expert leave the stack. A new expert becomes LIR while slots for LIR are free, else HIR. The
    victim is the HIR expert that was installed, used outside the stack or made HIR longest ago.

    The paper leaves open what happens if no HIR expert is evictable, as during a call with many misses. Here the lowest
    evictable LIR expert in the stack is evicted and forgotten. The expert that replaces it is HIR, so that the HIR part
    grows to what calls need; while slots for LIR are free, any hit makes an expert LIR.

    hir: share of the bank for HIR experts. A bank of two or more slots has at least one for them. The paper's 1% is
        one slot in banks of up to 199, enough to try experts one by one.
    stack: the longest stack, in bank sizes. Beyond it, the experts that left the bank first are forgotten.
    """

    name: ClassVar[str] = "lirs"
    source: ClassVar[str] = "Jiang and Zhang 2002 (SIGMETRICS), section 3"
    kernels: ClassVar[dict[str, Any]] = by_name(on_hit, on_install, choose_victim, on_evict)

    hir: float = 0.01
    stack: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share(self.name, "hir", self.hir)
        if self.stack < 1:
            raise OutOfRange(f"policy lirs: stack={self.stack} is not at least 1, the length of the bank")

    def allocate(self, shape: PoolShape) -> State:
        most_lirs = shape.capacity - slots_of(self.hir, shape.capacity)
        return (
            new_queues(shape.keys),
            new_queues(shape.slots),
            new_queues(shape.keys),
            np.zeros(shape.keys, np.uint8),
            np.zeros(shape.keys, np.bool_),
            np.zeros(shape.keys, np.int64),
            np.array([0, 0, 0, most_lirs, min(self.stack * shape.capacity, shape.keys)], np.int64),
        )
