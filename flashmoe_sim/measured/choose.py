"""Which of many measured speeds are looked at, and the lines on others."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any, TypeVar

from flashmoe_sim.measured.usable import Usable

T = TypeVar("T")
_PLACE = re.compile(r"(.*?: )((?:line|test|result|record|entry) \d+: )(.*)", re.DOTALL)


def alike_once(lines: Iterable[str]) -> list[str]:
    """Each line on what is not used, once for all places in a file."""
    found: dict[tuple[str, str], list[str]] = {}
    for line in lines:
        place = _PLACE.match(line)
        file, where, why = (place[1], place[2], place[3]) if place else ("", "", line)
        found.setdefault((file, why), []).append(where)
    return [
        f"not used: {file}{places[0]}{why}" + (f"; and {len(places) - 1:,} more" if len(places) > 1 else "")
        for (file, why), places in found.items()
    ]


def spread(usable: Sequence[Usable], most: int, *, in_question: str) -> list[Usable]:
    """The measurements in an order in which the first `most` differ most, in their settings and then in depth."""
    if len(usable) <= most:
        return list(usable)
    groups: dict[tuple[Any, ...], list[Usable]] = {}
    for one in usable:
        groups.setdefault(one.group, []).append(one)
    each = [sorted(group, key=lambda one: (one.measured.depth, one.measured.tokens or 0)) for group in groups.values()]
    each = [group for of_it in (True, False) for group in _far_apart(_of_model(each, in_question, of_it))]
    turns = zip_longest(*(_far_apart(group) for group in each))
    return [one for turn in turns for one in turn if one is not None]


def _of_model(groups: list[list[Usable]], name: str, of_it: bool) -> list[list[Usable]]:
    return [group for group in groups if (group[0].geometry.name == name) == of_it]


def _far_apart(ordered: Sequence[T]) -> list[T]:
    """The values in another order: both ends first, then the middle of the largest gap, and so on."""
    last = len(ordered) - 1
    places, gaps = [0, last][: len(ordered)], deque([(0, last)])
    while gaps:
        lo, hi = gaps.popleft()
        if hi - lo > 1:
            middle = (lo + hi) // 2
            places.append(middle)
            gaps += [(lo, middle), (middle, hi)]
    return [ordered[place] for place in places]
