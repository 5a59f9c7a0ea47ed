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


def mark_repeats(ids: NDArray[Any], largest: int, repeats: NDArray[np.uint8]) -> None:
    """Mark the rows (u8 [rows]) in which an id occurs twice, like `find_repeats`; rows of eight bytes are faster.

    ids: [rows, k], none above `largest`.
    """
    if ids.dtype == np.uint8 and ids.shape[1] == 8:  # the case of most models
        find_equal_bytes(ids.view(np.uint64)[:, 0], repeats)
    else:
        find_repeats(ids, np.full(largest + 1, -1), repeats)


@jit
def find_equal_bytes(words: NDArray[np.uint64], repeats: NDArray[np.uint8]) -> None:
    """Mark the words (u64 [rows]) in which a byte occurs twice.

    A byte of `differ` is zero if the byte equals the one rotated into its place; subtracting 1 from each byte then
    borrows into its highest bit. The processor does this for several rows at once.
    """
    units, highest = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
    for row in range(len(words)):
        one = words[row]
        equal = np.uint64(0)
        for shift in (8, 16, 24, 32):
            differ = one ^ ((one << np.uint64(shift)) | (one >> np.uint64(64 - shift)))
            equal |= (differ - units) & ~differ & highest
        repeats[row] = equal != 0


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


@jit
def decode_base64(text: NDArray[np.uint8], values: NDArray[np.uint8], out: NDArray[np.uint8]) -> None:
    """Decode whole groups of four letters into three bytes each.

    values: u8 [letters], scratch: 0 to 63 for each letter, 255 if it is not base64. Two loops without tables or
    branches are twice as fast as one with a table, since the processor handles 64 letters at once.
    """
    for at in range(len(text)):
        letter = text[at]
        value = np.uint8(letter - 71) if (letter >= 97) & (letter <= 122) else np.uint8(255)
        value = np.uint8(letter - 65) if (letter >= 65) & (letter <= 90) else value
        value = np.uint8(letter + 4) if (letter >= 48) & (letter <= 57) else value
        value = np.uint8(62) if letter == 43 else value
        values[at] = np.uint8(63) if letter == 47 else value
    for group in range(len(out) // 3):
        first, second = values[4 * group], values[4 * group + 1]
        third, fourth = values[4 * group + 2], values[4 * group + 3]
        out[3 * group] = np.uint8((first << 2) | (second >> 4))
        out[3 * group + 1] = np.uint8((second << 4) | (third >> 2))
        out[3 * group + 2] = np.uint8((third << 6) | fourth)
