"""LRU for several bank sizes in one walk under the contract `runtime`, with its aliasing.

An expert's last use is the same in every bank that holds it. So the banks share one row of bits, with a 1 for the last
use of each expert, and each bank has a hand: its least recently used expert belongs to the first 1 from the hand on
whose expert it holds. The hand only moves forward. A hit costs no work in any bank.

A victim may be requested later in its own call. It then counts as a hit and stays evicted, and its
former slot counts as used again: the expert now in the slot, the taker, gets that later use as its last use. Such moved
uses wait in a queue of the bank, in order, until its hand reaches them.

A use is the place of its reference in the pool plus 1, so that 0 means never requested.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim._jit import inlined, jit, trailing_zeros
from flashmoe_sim.residency import tally

MOST_SIZES = 64
ZERO, ONE, SIX, LAST = np.uint64(0), np.uint64(1), np.uint64(6), np.uint64(63)
NONE = np.uint64(2**64 - 1)

I64 = NDArray[np.int64]


@inlined
def first_use(last_uses: Any, at: Any) -> Any:
    """The first 1 from `at` on in a row of bits that has one; the next word is always read too: it saves a branch."""
    word = at >> SIX
    uses = (last_uses[word] >> (at & LAST)) | ((last_uses[word + ONE] << ONE) << (LAST - (at & LAST)))
    while uses == ZERO:
        word += ONE
        at = word << SIX
        uses = last_uses[word]
    return at + np.uint64(trailing_zeros(uses))


@inlined
def clear(last_uses: Any, use: Any) -> None:
    """Clear one 1 in a row of bits."""
    last_uses[use >> SIX] &= ~(ONE << (use & LAST))


@inlined
def put_in_order(queue: Any, bank: Any, head: Any, tail: Any, moved_to: Any, own: Any) -> None:
    """Insert a moved use and the taker's own use into a bank's ring, u64 [banks, 2, places], in ascending order."""
    places = queue.shape[2]
    i = tail[bank]
    tail[bank] = (i + 1) % places
    while i != head[bank] and queue[bank, 0, (i - 1) % places] > moved_to:
        queue[bank, 0, i], queue[bank, 1, i] = queue[bank, 0, (i - 1) % places], queue[bank, 1, (i - 1) % places]
        i = (i - 1) % places
    queue[bank, 0, i], queue[bank, 1, i] = moved_to, own


class _Walk(NamedTuple):
    """What a walk holds: u64 by key, by reference of a call, or by bank, and i64 counts by bank.

    last_uses: the row of bits. resident: by key, a bit for each bank that holds it, the lowest for the first bank.
    used: by key, the last use. moved: by key, the banks in which its slot was used after it.
    member, was, lacking: of the call, in the order of first reference. misses_of: each expert of a call has 2^width
        bits, for the banks that miss it. lost: [3, references x banks] of the call: aliased use, bank, the taker's use.
    hand: the use from which each bank searches. queue: its ring of moved uses, from `head` to `tail`; `upcoming` is the
        first.
    """

    last_uses: Any
    resident: Any
    used: Any
    moved: Any
    member: Any
    was: Any
    lacking: Any
    misses_of: Any
    lost: Any
    hand: Any
    queue: Any
    head: Any
    tail: Any
    upcoming: Any
    held: Any
    filled: Any
    misses: Any
    aliased: Any
    broken: Any


def lru(key: NDArray[np.uint32], offset: I64, row: NDArray[np.int32], keys: int, rooms: I64, counts: I64) -> None:
    """Replay one pool for all of `rooms`.

    key: [references], offset: [calls + 1], row: [calls], the row of `counts` a call is added to.
    keys: how many experts there are. rooms: [banks], slots, at most MOST_SIZES of them, each at least the distinct
        experts of the largest call.
    counts: [banks, rows, N_COLUMNS], added to.
    """
    banks, largest = len(rooms), int(np.diff(offset).max(initial=0))
    width = (banks - 1).bit_length()
    # From its hand on, a bank evicts at most as many experts as it has slots: that many moved uses wait at most.
    places = 2 * int(rooms.max()) + 1
    walk = (
        np.zeros((len(key) + 1) // 64 + 2, np.uint64),
        *np.zeros((3, keys), np.uint64),
        *np.zeros((3, largest), np.uint64),
        np.zeros((largest << width) // 64 + 1, np.uint64),
        np.zeros((3, largest * banks), np.uint64),
        np.ones(banks, np.uint64),
        np.zeros((banks, 2, places), np.uint64),
        *np.zeros((2, banks), np.int64),
        np.full(banks, NONE),
        *np.zeros((5, banks), np.int64),
    )
    _lru(key, offset, row, rooms, np.uint64(width), counts, _Walk._make(walk))


@jit
def _lru(key: Any, offset: Any, row: Any, rooms: Any, width: Any, counts: Any, walk: Any) -> None:
    last_uses, resident, used, moved, member, was, lacking, misses_of, lost = walk[:9]
    hand, queue, head, tail, upcoming, held, filled, misses, aliased, broken = walk[9:]
    banks = len(rooms)
    every = NONE >> np.uint64(MOST_SIZES - banks)
    requests: Any = 0
    begin = 0
    for call in range(len(offset) - 1):
        n, lacked, packed, new_uses = ZERO, ZERO, ZERO, ZERO
        now, end = np.uint64(offset[call]) + ONE, np.uint64(offset[call + 1]) + ONE
        for use in range(now, end):
            k = key[use - ONE]
            before = used[k]
            if before < now:
                used[k] = use
                new_uses |= ONE << (use & LAST)
                lacks = every & ~resident[k]
                resident[k] = every
                member[n], was[n], lacking[n] = k, before, lacks
                lacked |= lacks
                place = n << width
                packed |= lacks << (place & LAST)
                n += ONE
                if ((n << width) & LAST) == ZERO:
                    misses_of[place >> SIX] = packed
                    packed = ZERO
            if use & LAST == LAST:
                last_uses[use >> SIX] |= new_uses
                new_uses = ZERO
        last_uses[end >> SIX] |= new_uses
        misses_of[(n << width) >> SIX] = packed
        requests += np.int64(n)
        n_lost = 0
        for part in range(((n << width) + LAST) >> SIX):
            rest = misses_of[part]
            while rest:
                place = np.uint64(trailing_zeros(rest))
                rest &= rest - ONE
                bank = place & ((ONE << width) - ONE)
                bit = ONE << bank
                misses[bank] += 1
                if held[bank] < rooms[bank]:
                    held[bank] += 1
                    continue
                at = hand[bank]
                own = used[member[((part << SIX) + place) >> width]]
                while True:
                    at = first_use(last_uses, at)
                    if at >= upcoming[bank]:
                        at = upcoming[bank]
                        use = queue[bank, 1, head[bank]]
                        head[bank] = (head[bank] + 1) % queue.shape[2]
                        upcoming[bank] = queue[bank, 0, head[bank]] if head[bank] != tail[bank] else NONE
                        victim = np.uint64(key[use - ONE])
                        holds = moved[victim] & bit
                        if holds and used[victim] == use:
                            break
                    else:
                        use = at
                        at += ONE
                        victim = np.uint64(key[use - ONE])
                        holds = resident[victim] & ~moved[victim] & bit
                        if holds & (ZERO - np.uint64(used[victim] < now)):
                            break
                    if holds and used[victim] > own:  # requested later in this call
                        i = min(used[victim] - now, n - ONE)
                        while member[i] != victim:
                            i -= ONE
                        if was[i] == use and not lacking[i] & bit:
                            lost[0, n_lost], lost[1, n_lost], lost[2, n_lost] = used[victim], bank, own
                            n_lost += 1
                            break
                hand[bank] = at
                resident[victim] ^= bit
        for i in range(n):
            clear(last_uses, was[i])
            moved[member[i]] = ZERO
        for j in range(n_lost):
            use, bank, own = lost[0, j], lost[1, j], lost[2, j]
            aliased[bank] += 1
            moved[key[own - ONE]] |= ONE << bank
            put_in_order(queue, bank, head, tail, use, own)
            upcoming[bank] = queue[bank, 0, head[bank]]
        for number in range(banks):
            broken[number] += np.int64((lacked >> np.uint64(number)) & ONE)
        if call + 2 == len(offset) or row[call + 1] != row[call]:
            for number in range(banks):
                into = counts[number, row[call]]
                into[tally.CALLS] += call + 1 - begin
                into[tally.REFS] += offset[call + 1] - offset[begin]
                into[tally.REQUESTS] += requests
                into[tally.HITS] += requests - misses[number]
                into[tally.MISSES] += misses[number]
                into[tally.COLD] += held[number] - filled[number]
                into[tally.EVICTIONS] += misses[number] - held[number] + filled[number]
                into[tally.ALIASED] += aliased[number]
                into[tally.FULL_HIT_CALLS] += call + 1 - begin - broken[number]
                filled[number], misses[number], aliased[number], broken[number] = held[number], 0, 0, 0
            requests, begin = 0, call + 1
