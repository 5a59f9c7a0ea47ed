"""Compiled reading of JSON's pieces, one at a time.

Every kernel reads a writable u8 array whose last newline is followed by at least `PADDING` more bytes. No step needs a
bounds check: whatever is wrong with a line, its newline stops the scan. A position of -1 means that the piece is
refused; that is not an error yet, since a slower reader may accept the line.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim._jit import jit

PADDING = 64
LARGEST_ID = 2**15 - 1

NEWLINE, SPACE, TAB, RETURN, QUOTE, BACKSLASH = 10, 32, 9, 13, 34, 92
COMMA, COLON, MINUS, PLUS, DOT, ZERO = 44, 58, 45, 43, 46, 48
OPEN_LIST, CLOSE_LIST, OPEN_OBJECT, CLOSE_OBJECT = 91, 93, 123, 125
_LETTER_E, _LOWER_CASE, _DELETE = 101, 32, 127
_LONGEST_NUMBER = 40


@jit
def literal(data: NDArray[np.uint8], at: int, text: NDArray[np.uint8]) -> int:
    """The position after `text`, or -1 if `data` has something else there."""
    differs = 0
    for i in range(len(text)):
        differs |= data[at + i] ^ text[i]
    return at + len(text) if differs == 0 else -1


@jit
def space(data: NDArray[np.uint8], at: int) -> int:
    """The position of the first byte that is not white space; a newline ends the line and is not skipped."""
    while data[at] == SPACE or data[at] == TAB or data[at] == RETURN:
        at += 1
    return at


@jit
def text(data: NDArray[np.uint8], at: int) -> int:
    """The position after a string of printable ASCII without escapes, or -1."""
    if data[at] != QUOTE:
        return -1
    at += 1
    while data[at] != QUOTE:
        if data[at] < SPACE or data[at] >= _DELETE or data[at] == BACKSLASH:
            return -1
        at += 1
    return at + 1


@jit
def integer(data: NDArray[np.uint8], at: int) -> tuple[int, int]:
    """Read an integer of at most 18 digits without a sign: (value, position after it or -1)."""
    value = 0
    start = at
    while ZERO <= data[at] <= ZERO + 9:
        if at - start == 18:
            return 0, -1
        value = value * 10 + (data[at] - ZERO)
        at += 1
    if at == start or (at - start > 1 and data[start] == ZERO):
        return 0, -1
    return value, at


@jit
def digits(data: NDArray[np.uint8], at: int) -> int:
    """The position after a run of at least one digit, or -1."""
    start = at
    while ZERO <= data[at] <= ZERO + 9:
        at += 1
    return at if at > start else -1


@jit
def number(data: NDArray[np.uint8], at: int) -> int:
    """The position after a JSON number of any kind, or -1.

    Refuses numbers so long that they may overflow a double: orjson rejects those, so it must decide.
    """
    begin = at
    start = at + (data[at] == MINUS)
    at = digits(data, start)
    if at < 0 or (at - start > 1 and data[start] == ZERO):
        return -1
    if data[at] == DOT:
        at = digits(data, at + 1)
        if at < 0:
            return -1
    if data[at] | _LOWER_CASE == _LETTER_E:
        signed = data[at + 1] == PLUS or data[at + 1] == MINUS
        exponent = at + 1 + signed
        at = digits(data, exponent)
        if at - exponent > 2:
            return -1
    return at if at - begin <= _LONGEST_NUMBER else -1


@jit
def ids(data: NDArray[np.uint8], at: int, out: NDArray[np.int16], start: int, lowest: int) -> tuple[int, int]:
    """Read a list of integers from `lowest` to LARGEST_ID into `out[start:]`: (count, position after it or -1)."""
    if data[at] != OPEN_LIST:
        return 0, -1
    after = space(data, at + 1)
    if data[after] == CLOSE_LIST:
        return 0, after + 1
    i = start
    while i < len(out):
        at = space(data, at + 1)
        negative = data[at] == MINUS
        value, at = integer(data, at + negative)
        if at < 0 or value > LARGEST_ID:
            return 0, -1
        if negative:
            value = -value
            if value == 0 or value < lowest:
                return 0, -1
        out[i] = value
        i += 1
        at = space(data, at)
        if data[at] != COMMA:
            break
    if data[at] != CLOSE_LIST:
        return 0, -1
    return i - start, at + 1


@jit
def short_ids(data: NDArray[np.uint8], at: int, out: NDArray[np.int16], start: int, count: int) -> int:
    """Read `count` ids of one to three digits with only commas between them: the position after them, or -1.

    Branches only on what is the same in all good lines, so the processor never predicts how many digits an id has; `|`
    and `&` instead of `or` and `and` keep it to one branch per id (10 % faster).
    """
    if count == 0:
        return at
    last = start + count - 1
    for i in range(start, start + count):
        first = np.int64(data[at]) - ZERO
        second = np.int64(data[at + 1]) - ZERO
        third = np.int64(data[at + 2]) - ZERO
        two = (second >= 0) & (second <= 9)
        three = two & (third >= 0) & (third <= 9)
        value = first
        length = 1
        if two:
            value = value * 10 + second
            length = 2
        if three:
            value = value * 10 + third
            length = 3
        out[i] = value
        at += length
        if (first < 0) | (first > 9) | (two & (first == 0)) | ((data[at] != COMMA) & (i != last)):
            return -1
        at += 1
    return at - 1
