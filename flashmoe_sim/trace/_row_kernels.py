"""Kernels for rows of expert ids, as engines return them for one request."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim._jit import jit


@jit
def find_repeats(ids: NDArray[Any], last_row: NDArray[np.int64], repeats: NDArray[np.uint8]) -> None:
    """Mark the rows (u8 [rows]) in which an id occurs twice; negative ids are ignored.

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


def lay_out_into(
    out: NDArray[Any],
    values: NDArray[Any],
    rows: NDArray[np.int64],
    layers: NDArray[np.int64],
    tokens: NDArray[np.int32],
) -> None:
    """Put the chosen rows and layers of values [rows, layers, k] in the order of calls: step by step, layer by layer.

    tokens: i32 [steps], how many rows each step has. A token's values in a layer are moved as a few large words.
    """
    alike = values.itemsize == out.itemsize
    laid = out.view(values.dtype) if alike else np.empty(len(out), values.dtype)
    size = values.shape[2] * values.itemsize
    word = next(np.dtype(word) for word in ("u8", "u4", "u2", "u1") if not size % int(word[1]))
    flat = np.ascontiguousarray(values).reshape(-1).view(word)
    lay_out(flat, (values.shape[1], size // word.itemsize), rows, layers, tokens, laid.view(word))
    if not alike:
        out[:] = laid


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

    values: flat; `shape` has the layers and ranks of a row. tokens: i32 [steps], how many rows each step has.
    """
    k = np.uint64(shape[1])  # unsigned: no test for < 0
    width = np.uint64(shape[0]) * k
    at, first = np.uint64(0), 0
    for count in tokens:
        for layer in layers:
            place = np.uint64(layer) * k
            for token in range(first, first + count):
                begin = np.uint64(rows[token]) * width + place
                out[at] = values[begin]
                for rank in range(1, k):
                    out[at + np.uint64(rank)] = values[begin + np.uint64(rank)]
                at += k
        first += count
