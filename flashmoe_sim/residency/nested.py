"""The counts of min with bypass for several bank sizes in one walk over a pool's calls.

A larger bank under min holds all that a smaller one holds. So the banks are kept as levels: each has what its bank
holds beyond the next smaller one. All that a call requests goes into the first level, and from each level that is over
its capacity, the furthest next uses move to the next level.

A level is the set of its next uses, which no two keys share: a bit for each reference of the pool, then one for each
key that is not used again. Past next uses need not be removed, since they lie before all others. A summary, with a bit
for each word that is not 0, skips long gaps. It is looked up even if the same word has the next furthest use, because
that branch would be unpredictable: without it the walk takes two thirds of the time.

Source: Mattson et al. 1970 for the levels, a stack algorithm that distinguishes only the given sizes; van Emde
Boas et al. 1977 for a set of numbers with a summary of its non-empty parts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.cpython.unsafe import numbers

from flashmoe_sim._jit import inlined, jit
from flashmoe_sim.policies.base import NEVER
from flashmoe_sim.residency import tally
from flashmoe_sim.residency.one_pass import longest_call

leading_zeros: Any = numbers.leading_zeros

MOST_SIZES = 64
REPEATED = np.uint8(255)
ONE, SIX, LAST = np.uint64(1), np.uint64(6), np.uint64(63)


@inlined
def highest(word: Any) -> Any:
    """The place of the highest 1 in a u64 that is not 0."""
    return LAST - np.uint64(leading_zeros(word))


@inlined
def insert(words: Any, busy: Any, level: Any, use: Any) -> None:
    """Put a next use into a level; words: u64 [levels, words], busy: a bit for each word that is not 0."""
    word = use >> SIX
    words[level, word] |= ONE << (use & LAST)
    busy[level, word >> SIX] |= ONE << (word & LAST)


@inlined
def remove_furthest(words: Any, busy: Any, level: Any, furthest: Any) -> Any:
    """Take the furthest next use out of a level that has others, and find the furthest remaining one."""
    word = furthest >> SIX
    rest = words[level, word] ^ (ONE << (furthest & LAST))
    words[level, word] = rest
    at = word >> SIX
    others = busy[level, at] ^ (np.uint64(rest == 0) << (word & LAST))
    busy[level, at] = others
    while others == 0:
        at -= ONE
        others = busy[level, at]
    word = (at << SIX) + highest(others)
    return (word << SIX) + highest(words[level, word])


@jit
def min_bypass(offset: Any, row: Any, upcoming: Any, first: Any, sizes: Any, counts: Any) -> None:
    """Replay one pool for all of `sizes` under the contract `atomic`.

    first: i64 [keys], the first reference to each key, or the number of references.
    sizes: i64 [banks], slots, strictly ascending, at most MOST_SIZES.
    counts: i64 [banks, rows, N_COLUMNS], added to. The other arguments are as for the atomic loop.
    """
    levels, references, keys = len(sizes), len(upcoming), len(first)
    n_words = (references + keys) // 64 + 1
    words = np.zeros((levels + 1, n_words), np.uint64)  # the last level: held by no bank
    busy = np.zeros((levels + 1, n_words // 64 + 1), np.uint64)
    furthest = np.zeros(levels + 1, np.uint64)
    room = sizes.copy()
    for level in range(1, levels):
        room[level] -= sizes[level - 1]
    held = np.zeros(levels, np.int64)
    filled = np.zeros(levels, np.int64)
    # The level of each next use. A reference that is no next use is the first to its key, or a repeat in its call.
    level_at = np.full(references + keys, REPEATED)
    for k in range(keys):
        if first[k] < references:
            level_at[first[k]] = levels + 1
    unused = np.uint64(references + keys)
    found = np.zeros(longest_call(offset), np.uint8)
    uses = np.zeros(len(found), np.uint64)
    hits = np.zeros(levels + 2, np.int64)
    of_row = np.zeros((3, levels + 2), np.int64)
    # By smallest bank: requests resident before the call, requests resident before or after, calls wholly resident.
    requested, kept, deepest = of_row[0], of_row[1], of_row[2]
    begin = 0
    for call in range(len(offset) - 1):
        hits[:] = 0
        n, missed, worst, top = 0, np.uint64(0), np.uint8(0), furthest[0]
        for r in range(np.uint64(offset[call]), np.uint64(offset[call + 1])):
            level = level_at[r]
            if level == REPEATED:
                continue
            use = np.uint64(upcoming[r])
            if upcoming[r] == NEVER:  # of two keys that are not used again, the one requested later is the nearer
                unused -= ONE
                use = unused
            insert(words, busy, 0, use)
            level_at[use] = 0
            top = max(top, use)
            hits[level] += 1
            n += 1
            found[missed], uses[missed] = level, use
            missed += np.uint64(level > 0)
            worst = max(worst, level)
        furthest[0] = top
        incoming: Any = n
        for level in range(levels):
            held[level] += incoming - hits[level]
            incoming = max(held[level] - room[level], 0)
            held[level] -= incoming
            if incoming == 0:
                continue
            top = furthest[level]
            furthest[level + 1] = max(furthest[level + 1], top)
            for _ in range(incoming):
                level_at[top] = level + 1
                insert(words, busy, level + 1, top)
                top = remove_furthest(words, busy, level, top)
            furthest[level] = top
        kept[0] += n - np.int64(missed)
        for i in range(missed):
            kept[min(found[i], level_at[uses[i]])] += 1
        for level in range(levels + 2):
            requested[level] += hits[level]
        deepest[worst] += 1
        if call + 2 == len(offset) or row[call + 1] != row[call]:
            requests, hit, has, whole, holds = requested.sum(), 0, 0, 0, 0
            for bank in range(levels):
                hit += requested[bank]
                has += kept[bank]
                whole += deepest[bank]
                holds += held[bank]
                into = counts[bank, row[call]]
                into[tally.CALLS] += call + 1 - begin
                into[tally.REFS] += offset[call + 1] - offset[begin]
                into[tally.REQUESTS] += requests
                into[tally.HITS] += hit
                into[tally.MISSES] += requests - hit
                into[tally.BYPASSED] += requests - has
                into[tally.COLD] += holds - filled[bank]
                into[tally.EVICTIONS] += has - hit - (holds - filled[bank])
                into[tally.FULL_HIT_CALLS] += whole
                filled[bank] = holds
            of_row[:] = 0
            begin = call + 1
