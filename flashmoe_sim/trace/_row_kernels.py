"""Kernels that look at rows of expert ids, as engines return them for one request."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim._jit import jit

BLOCK = 2048


@jit
def find_repeats(ids: NDArray[Any], column: NDArray[Any], repeats: NDArray[np.uint8]) -> int:
    """Mark the rows (u8 [rows]) in which an id stands twice; how many there are.

    ids: [rows, k]. column: scratch of the same dtype, [k, BLOCK]: in it the comparisons run over whole vectors, which
    takes less than half the time of a table of the ids seen.
    """
    rows, k = ids.shape
    found = 0
    for begin in range(0, rows, BLOCK):
        count = min(BLOCK, rows - begin)
        for row in range(count):
            for rank in range(k):
                column[rank, row] = ids[begin + row, rank]
        for rank in range(k):
            for other in range(rank):
                for row in range(count):
                    repeats[begin + row] |= column[rank, row] == column[other, row]
        for row in range(count):
            found += repeats[begin + row]
    return found


@jit
def decode_base64(text: NDArray[np.uint8], table: NDArray[np.uint32], out: NDArray[np.uint8]) -> int:
    """Decode whole groups of four letters into three bytes each; 0 if all were letters of base64.

    table: u32 [4, 256], for each place in a group the bits of a letter, the highest bit set if it is none.
    """
    seen = np.uint32(0)
    for group in range(len(out) // 3):
        bits = (
            table[0, text[4 * group]]
            | table[1, text[4 * group + 1]]
            | table[2, text[4 * group + 2]]
            | table[3, text[4 * group + 3]]
        )
        seen |= bits
        out[3 * group] = bits & 255
        out[3 * group + 1] = (bits >> 8) & 255
        out[3 * group + 2] = (bits >> 16) & 255
    return int(seen >> 31)
