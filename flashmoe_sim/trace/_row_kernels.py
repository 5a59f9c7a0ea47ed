"""Kernels that look at rows of expert ids, as engines return them for one request."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim._jit import jit


@jit
def find_repeats(ids: NDArray[Any], last_row: NDArray[np.int64], repeats: NDArray[np.uint8]) -> None:
    """Mark the rows (u8 [rows]) in which an id stands twice; negative ids are passed over.

    ids: [rows, k]. last_row: i64 [ids], filled with -1.
    """
    rows, k = ids.shape
    for row in range(rows):
        for rank in range(k):
            one = ids[row, rank]
            if one < 0:
                continue
            if last_row[one] == row:
                repeats[row] = 1
            last_row[one] = row


@jit
def lay_out(
    values: NDArray[Any],
    shape: tuple[int, int],
    rows: NDArray[np.int64],
    layers: NDArray[np.int64],
    tokens: NDArray[np.int32],
    out: NDArray[Any],
) -> None:
    """Put the chosen rows and layers in the order of calls: step by step, layer by layer.

    values: flat, of rows with the layers and ranks of `shape`. tokens: i32 [steps], how many rows each step has.
    """
    k = np.uint64(shape[1])  # unsigned: no test for < 0
    width = np.uint64(shape[0]) * k
    at, first = np.uint64(0), 0
    for count in tokens:
        for layer in layers:
            for token in range(first, first + count):
                begin = np.uint64(rows[token]) * width + np.uint64(layer) * k
                for rank in range(k):
                    out[at + rank] = values[begin + rank]
                at += k
        first += count


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
