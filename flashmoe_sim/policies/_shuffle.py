"""The shuffle that a C++ program gets from libstdc++: std::shuffle with std::mt19937."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

RANGE = np.uint64(1 << 32)  # of the generator's numbers


@lru_cache(maxsize=16)
def shuffled(n: int, *, seed: int) -> NDArray[np.int64]:
    """0 to n - 1 as libstdc++ shuffles them, i64 [n]; `seed` seeds std::mt19937.

    If n squared fits in 32 bits, each number drawn provides two places to swap with.
    """
    if n * n >= RANGE:
        partner = _below(np.arange(2, n + 1), seed=seed)
    else:
        single = np.array([2] if n > 1 and n % 2 == 0 else [], np.int64)
        pairs = np.arange(1 + len(single), n, 2)
        drawn = _below(np.concatenate([single, (pairs + 1) * (pairs + 2)]), seed=seed)
        both = np.stack(np.divmod(drawn[len(single) :], pairs + 2), axis=1)
        partner = np.concatenate([drawn[: len(single)], both.reshape(-1)])
    order = list(range(n))
    for i, other in enumerate(partner.tolist(), 1):
        order[i], order[other] = order[other], order[i]
    shuffle = np.array(order, np.int64)
    shuffle.flags.writeable = False  # of all who ask for it
    return shuffle


def _below(n: NDArray[np.int64], *, seed: int) -> NDArray[np.int64]:
    """For each n in turn a number from 0 to n - 1: the high half of a product of n and the next number drawn.

    Draws whose low half would cause a bias are rejected, and the next one is taken.
    """
    of, state = n.astype(np.uint64), np.random.RandomState(seed)
    drawn = np.zeros(0, np.uint64)
    while True:
        more = state.randint(0, int(RANGE), len(n) - len(drawn), np.uint32)
        drawn = np.append(drawn, more.astype(np.uint64))
        product = drawn * of
        biased = np.flatnonzero(product % RANGE < RANGE % of)
        if not len(biased):
            return (product // RANGE).astype(np.int64)
        drawn = np.delete(drawn, biased[0])
