"""Compiled parsing of whole lines of the patched runtime's trace.

Every kernel reads a writable u8 array whose last newline is followed by at least `PADDING` more bytes. No step needs a
bounds check: whatever is wrong with a line, its newline stops the scan. A position of -1 means that the piece is
refused; that is not an error yet, since a slower reader may accept the line.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from flashmoe_sim._jit import jit
from flashmoe_sim.trace.calls import ID_MAX

PADDING = 64

NEWLINE, SPACE, TAB, RETURN, COMMA, COLON, MINUS, ZERO = 10, 32, 9, 13, 44, 58, 45, 48
OPEN_LIST, CLOSE_LIST, OPEN_OBJECT, CLOSE_OBJECT = 91, 93, 123, 125

# The known keys. The first seven are also the columns of the table of calls.
KEY_NAMES = ("seq", "layer", "n_expert_used", "n_tokens", "phase", "sequence", "step", "experts", "slots", "weights")
SEQ, LAYER, N_EXPERT_USED, N_TOKENS, PHASE, SEQUENCE, STEP, EXPERTS, SLOTS, WEIGHTS = range(10)
# Two more columns: the line number, and the line's keys (bit 1 << key).
LINE, KEYS = 7, 8
COLUMNS = 9

REQUIRED = 1 << LAYER | 1 << EXPERTS
COUNTS = 1 << N_EXPERT_USED | 1 << N_TOKENS
# The number of steps is one more than the last step, and fits 32 bits too.
LARGEST = np.array([2**63 - 1, ID_MAX, 2**31 - 1, 2**31 - 1, 2, 2**31 - 1, 2**31 - 2])
# The shortest line is {"layer":0,"experts":[0]} and a newline; an id takes at least two bytes.
SHORTEST_LINE, SHORTEST_ID = 26, 2

_KEYS = np.array([list(f'"{name}"'.encode().ljust(16)) for name in KEY_NAMES[:WEIGHTS]], np.uint8)
_KEY_LENGTH = np.array([len(name) + 2 for name in KEY_NAMES[:WEIGHTS]])


@jit
def _space(data: Any, at: int) -> int:
    """The position of the first byte that is not white space; a newline ends the line and is not skipped."""
    while data[at] == SPACE or data[at] == TAB or data[at] == RETURN:
        at += 1
    return at


@jit
def _key(data: Any, at: int) -> tuple[int, int]:
    """Read a quoted key: (its number, position after it or -1)."""
    for key in range(len(_KEY_LENGTH)):
        same = 0
        while same < _KEY_LENGTH[key] and data[at + same] == _KEYS[key, same]:
            same += 1
        if same == _KEY_LENGTH[key]:
            return key, at + same
    return 0, -1


@jit
def _integer(data: Any, at: int) -> tuple[int, int]:
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
def _ids(data: Any, at: int, out: Any, start: int, lowest: int) -> tuple[int, int]:
    """Read a list of integers from `lowest` to ID_MAX into `out[start:]`: (count, position after it or -1)."""
    if data[at] != OPEN_LIST:
        return 0, -1
    after = _space(data, at + 1)
    if data[after] == CLOSE_LIST:
        return 0, after + 1
    i = start
    while i < len(out):
        at = _space(data, at + 1)
        negative = data[at] == MINUS
        value, at = _integer(data, at + negative)
        if at < 0 or value > ID_MAX:
            return 0, -1
        if negative:
            value = -value
            if value == 0 or value < lowest:
                return 0, -1
        out[i] = value
        i += 1
        at = _space(data, at)
        if data[at] != COMMA:
            break
    if data[at] != CLOSE_LIST:
        return 0, -1
    return i - start, at + 1


@jit
def _line(data: Any, at: int, row: Any, expert: Any, slot: Any, ref: int) -> int:
    """Read an object with its keys in any order: the position of its newline, or -1.

    If n_expert_used or n_tokens is missing, it follows from the number of experts; without both, the line is one token.
    It also refuses what is rare and takes much code: weights, phases in words, unknown keys, and a key twice.
    """
    at = _space(data, at)
    if data[at] != OPEN_OBJECT:
        return -1
    keys = 0
    n_ids = 0
    n_slots = 0
    while True:
        key, at = _key(data, _space(data, at + 1))
        if at < 0 or keys >> key & 1:
            return -1
        keys |= 1 << key
        at = _space(data, at)
        if data[at] != COLON:
            return -1
        at = _space(data, at + 1)
        if key == EXPERTS:
            n_ids, at = _ids(data, at, expert, ref, 0)
        elif key == SLOTS:
            n_slots, at = _ids(data, at, slot, ref, -1)
        else:
            value, at = _integer(data, at)
            if value > LARGEST[key]:
                return -1
            row[key] = value
        if at < 0:
            return -1
        at = _space(data, at)
        if data[at] != COMMA:
            break
    if data[at] != CLOSE_OBJECT or keys & REQUIRED != REQUIRED:
        return -1
    if not keys >> N_TOKENS & 1:
        counted = keys >> N_EXPERT_USED & 1 and row[N_EXPERT_USED] > 0
        row[N_TOKENS] = n_ids // row[N_EXPERT_USED] if counted else 1
    if not keys >> N_EXPERT_USED & 1:
        row[N_EXPERT_USED] = n_ids // max(row[N_TOKENS], 1)
    at = _space(data, at + 1)
    if data[at] != NEWLINE or row[N_EXPERT_USED] < 1:
        return -1
    if n_ids != row[N_EXPERT_USED] * row[N_TOKENS] or (keys >> SLOTS & 1 and n_slots != n_ids):
        return -1
    row[KEYS] = keys
    return at


class Position(NamedTuple):
    """How far a stream has been parsed.

    at: where the next line begins in the data. lines: newlines before it in the whole stream. call, ref: how many rows
    and references are filled.
    """

    at: int
    lines: int
    call: int
    ref: int


@jit
def parse_lines(data: Any, end: int, begin: Position, table: Any, expert: Any, slot: Any) -> tuple[int, int, int, int]:
    """Parse whole lines from `begin` on until `end` or until one is refused; return the fields of a Position there.

    data: u8, padded by PADDING bytes; `end` is the position after a newline.
    table: i64 [calls, COLUMNS]; expert, slot: i16 [references]; large enough for the shortest lines and ids.
    """
    at, lines, call, ref = begin
    while at < end:
        row = table[call]
        after = _line(data, at, row, expert, slot, ref)
        if after >= 0:
            row[LINE] = lines + 1
            ref += row[N_EXPERT_USED] * row[N_TOKENS]
            call += 1
        else:
            after = _space(data, at)
            if data[after] != NEWLINE:
                break
        lines += 1
        at = after + 1
    return at, lines, call, ref  # a named tuple is made by Python code, in which Ctrl-C would crash the process
