"""The shuffle that a C++ program gets from libstdc++: std::shuffle with std::mt19937."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

RANGE = 1 << 32  # of the generator's numbers
BLOCK = 1024


def shuffled(n: int, *, seed: int) -> NDArray[np.int64]:
    """0 to n - 1 as libstdc++ shuffles them, i64 [n]; `seed` seeds std::mt19937.

    If n squared fits in 32 bits, each number drawn provides two places to swap with.
    """
    order = list(range(n))
    random = _numbers(seed)
    if n * n >= RANGE:
        for i in range(1, n):
            _swap(order, i, _below(i + 1, random))
        return np.array(order, np.int64)
    i = 1
    if n > 1 and n % 2 == 0:
        _swap(order, 1, _below(2, random))
        i = 2
    while i < n:
        first, second = divmod(_below((i + 1) * (i + 2), random), i + 2)
        _swap(order, i, first)
        _swap(order, i + 1, second)
        i += 2
    return np.array(order, np.int64)


def _swap(order: list[int], a: int, b: int) -> None:
    order[a], order[b] = order[b], order[a]


def _below(n: int, random: Iterator[int]) -> int:
    """A number from 0 to n - 1: the high half of a product; draws whose low half would cause a bias are rejected."""
    while True:
        high, low = divmod(next(random) * n, RANGE)
        if low >= RANGE % n:
            return high


def _numbers(seed: int) -> Iterator[int]:
    """The numbers of std::mt19937, one after another."""
    state = np.random.RandomState(seed)
    while True:
        yield from map(int, state.randint(0, RANGE, BLOCK, np.uint32))
