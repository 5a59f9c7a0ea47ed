"""Random numbers that are the same for the same seed on every machine and thread."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim._jit import inlined

SEEDS = (1, 2**32 - 1)  # what a generator can start from


def new_generator(seed: int) -> NDArray[np.int64]:
    """The state of a generator: i64 [1]."""
    return np.array([seed], np.int64)


@inlined
def draw(generator: Any) -> int:
    """The next number, in 1..2^32 - 1: xorshift32 with the shifts 13, 17 and 5 (Marsaglia 2003)."""
    x = generator[0]
    x ^= (x << np.int64(13)) & np.int64(0xFFFFFFFF)
    x ^= x >> np.int64(17)
    x ^= (x << np.int64(5)) & np.int64(0xFFFFFFFF)
    generator[0] = x
    return x  # type: ignore[no-any-return]


@inlined
def unit_draw(generator: Any) -> float:
    """The next number as a fraction, above 0 and below 1."""
    return draw(generator) / 4294967296.0  # type: ignore[no-any-return]
