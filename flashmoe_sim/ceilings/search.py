"""Finding the smallest number that is enough."""

from __future__ import annotations

from collections.abc import Callable


def most_tries(most: int) -> int:
    """How often `smallest` asks, at most, up to about `most`."""
    return 2 * most.bit_length() + 1


def smallest(enough: Callable[[int], bool], most: int) -> int | None:
    """The smallest of 0..most that is enough, by doubling and then bisection; None if `most` is not.

    Exact if every larger number is also enough. Otherwise the result is enough, but a smaller number may be, too.
    """
    if most < 0:
        return None
    below, found = -1, 0
    while not enough(found):
        if found == most:
            return None
        below, found = found, min(max(2 * found, 1), most)
    while found - below > 1:
        middle = (below + found) // 2
        if enough(middle):
            found = middle
        else:
            below = middle
    return found
