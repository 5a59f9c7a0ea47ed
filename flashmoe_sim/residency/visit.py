"""The order in which a replay loop visits the distinct experts of a call, if not by first reference."""

from __future__ import annotations

from typing import Any

from flashmoe_sim._jit import jit

FIRST, LAST, HITS_FIRST, REVERSE, HITS_FIRST_SORTED = 0, 1, 2, 3, 4  # places in policies.base.STAMPS


@jit
def visit_order(stamp: int, key: Any, begin: int, end: int, key_slot: Any, seen: Any, mark: int, visit: Any) -> int:
    """Write the references to visit into `visit`, i64 [keys], and return how many: the distinct keys of the call.

    seen: i64 [keys], scratch for this function only; `mark` must be a new number in each call.
    """
    n = 0
    if stamp in (LAST, REVERSE):
        for r in range(end - 1, begin - 1, -1):
            if seen[key[r]] != mark:
                seen[key[r]] = mark
                visit[n] = r
                n += 1
        for i in range(n // 2 if stamp == LAST else 0):
            visit[i], visit[n - 1 - i] = visit[n - 1 - i], visit[i]
        return n
    for missed in range(2):
        first = n
        for r in range(begin, end):
            if (key_slot[key[r]] < 0) == (missed == 1) and seen[key[r]] != mark:
                seen[key[r]] = mark
                place = n
                while stamp == HITS_FIRST_SORTED and missed and place > first and key[visit[place - 1]] > key[r]:
                    visit[place] = visit[place - 1]
                    place -= 1
                visit[place] = r
                n += 1
    return n
