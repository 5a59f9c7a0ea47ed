"""The fewest misses that any decisions could give, by trying them all. For traces of a few calls and experts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from itertools import combinations

Call = tuple[int, ...]  # experts in the order of the trace
Held = frozenset[int]
Choices = Callable[[Held, frozenset[int], int], Iterator[Held]]


def fewest_misses(calls: list[Call], slots: int, choices: Choices) -> int:
    """`choices` gives what may be held after a call, from what was held before and what the call requested."""

    @cache
    def search(number: int, held: Held) -> int:
        if number == len(calls):
            return 0
        union = frozenset(calls[number])
        return len(union - held) + min(search(number + 1, after) for after in choices(held, union, slots))

    return search(0, frozenset())


def fewest_misses_one_by_one(calls: list[Call], slots: int, choices: Choices) -> int:
    """As above, with every reference a call of its own (contract `sequential`)."""
    return fewest_misses([(expert,) for call in calls for expert in call], slots, choices)


def subsets(items: frozenset[int], least: int, most: int) -> Iterator[Held]:
    ordered = sorted(items)
    for size in range(max(least, 0), min(most, len(ordered)) + 1):
        yield from map(frozenset, combinations(ordered, size))


def bypass(held: Held, union: frozenset[int], slots: int) -> Iterator[Held]:
    """Anything that fits, of what was held and what was requested; nothing need be admitted."""
    return subsets(held | union, 0, slots)


def forced(held: Held, union: frozenset[int], slots: int) -> Iterator[Held]:
    """All that was requested stays until the end of the call, as much of it as fits; anything else may go."""
    if len(union) > slots:
        yield from subsets(union, slots, slots)
        return
    for kept in subsets(held - union, 0, slots - len(union)):
        yield kept | union
