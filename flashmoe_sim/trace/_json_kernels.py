"""Compiled parsing of whole lines of the patched runtime's trace: the exact layout first, then keys in any order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim._jit import jit
from flashmoe_sim.trace._json_tokens import (
    CLOSE_LIST,
    CLOSE_OBJECT,
    COLON,
    COMMA,
    NEWLINE,
    OPEN_OBJECT,
    QUOTE,
    ids,
    integer,
    literal,
    number,
    short_ids,
    space,
    text,
)

# The known keys. The first seven are also the columns of the table of calls.
KEY_NAMES = ("seq", "layer", "n_expert_used", "n_tokens", "phase", "sequence", "step", "experts", "slots", "weights")
SEQ, LAYER, N_EXPERT_USED, N_TOKENS, PHASE, SEQUENCE, STEP, EXPERTS, SLOTS, WEIGHTS = range(10)
# Two more columns: the line number, and the line's keys (bit 1 << key).
LINE, KEYS = 7, 8
COLUMNS = 9

REQUIRED = 1 << LAYER | 1 << EXPERTS
COUNTS = 1 << N_EXPERT_USED | 1 << N_TOKENS
# The number of steps is one more than the last step, and fits 32 bits too.
LARGEST = np.array([2**63 - 1, 2**15 - 1, 2**31 - 1, 2**31 - 1, 2, 2**31 - 1, 2**31 - 2])
# The shortest line is {"layer":0,"experts":[0]} and a newline; an id takes at least two bytes.
SHORTEST_LINE, SHORTEST_ID = 26, 2

_SEQ = np.frombuffer(b'{"seq":', np.uint8)
_LAYER = np.frombuffer(b',"layer":', np.uint8)
_N_EXPERT_USED = np.frombuffer(b',"n_expert_used":', np.uint8)
_N_TOKENS = np.frombuffer(b',"n_tokens":', np.uint8)
_EXPERTS = np.frombuffer(b',"experts":[', np.uint8)
_SLOTS = np.frombuffer(b'],"slots":[', np.uint8)
_PROMPT = np.frombuffer(b'"prompt"', np.uint8)
_DECODE = np.frombuffer(b'"decode"', np.uint8)
_KEY_BYTES = np.array([list(name.encode().ljust(16)) for name in KEY_NAMES], np.uint8)
_KEY_LENGTH = np.array([len(name) for name in KEY_NAMES])


@jit
def _labelled(data: NDArray[np.uint8], at: int, label: NDArray[np.uint8]) -> tuple[int, int]:
    """Read an integer right after `label`: (value, position after it or -1)."""
    at = literal(data, at, label)
    if at < 0:
        return 0, -1
    value, at = integer(data, at)
    return value, at


@jit
def _fits(layer: int, n_expert_used: int, n_tokens: int) -> bool:
    """Whether the numbers of a call, which are not negative, are in range."""
    small = layer <= LARGEST[LAYER] and n_expert_used <= LARGEST[N_EXPERT_USED] and n_tokens <= LARGEST[N_TOKENS]
    return bool(small and n_expert_used >= 1)


@jit
def _exact_line(
    data: NDArray[np.uint8],
    at: int,
    row: NDArray[np.int64],
    expert: NDArray[np.int16],
    slot: NDArray[np.int16],
    ref: int,
) -> int:
    """Read a line exactly as the runtime writes it, with or without slots: the position of its newline, or -1."""
    seq, at = _labelled(data, at, _SEQ)
    if at < 0:
        return -1
    layer, at = _labelled(data, at, _LAYER)
    if at < 0:
        return -1
    n_expert_used, at = _labelled(data, at, _N_EXPERT_USED)
    if at < 0:
        return -1
    n_tokens, at = _labelled(data, at, _N_TOKENS)
    if at < 0 or not _fits(layer, n_expert_used, n_tokens):
        return -1
    count = n_expert_used * n_tokens
    at = literal(data, at, _EXPERTS)
    if at < 0 or count > len(expert) - ref:
        return -1
    at = short_ids(data, at, expert, ref, count)
    if at < 0:
        return -1
    keys = REQUIRED | COUNTS | 1 << SEQ
    if data[at + 1] == COMMA:
        at = literal(data, at, _SLOTS)
        if at < 0:
            return -1
        at = short_ids(data, at, slot, ref, count)
        if at < 0:
            return -1
        keys |= 1 << SLOTS
    if data[at] != CLOSE_LIST or data[at + 1] != CLOSE_OBJECT or data[at + 2] != NEWLINE:
        return -1
    row[SEQ] = seq
    row[LAYER] = layer
    row[N_EXPERT_USED] = n_expert_used
    row[N_TOKENS] = n_tokens
    row[KEYS] = keys
    return at + 2


@jit
def _known_key(data: NDArray[np.uint8], start: int, length: int) -> int:
    """The number of the key spelled by `length` bytes at `start`, or -1."""
    for key in range(len(_KEY_LENGTH)):
        if _KEY_LENGTH[key] == length:
            differs = 0
            for i in range(length):
                differs |= data[start + i] ^ _KEY_BYTES[key, i]
            if differs == 0:
                return key
    return -1


@jit
def _phase(data: NDArray[np.uint8], at: int) -> tuple[int, int]:
    """Read a phase, a number or a word: (value, position after it or -1)."""
    if data[at] != QUOTE:
        value, at = integer(data, at)
        return value, at
    after = literal(data, at, _PROMPT)
    if after >= 0:
        return 1, after
    return 2, literal(data, at, _DECODE)


@jit
def _any_line(
    data: NDArray[np.uint8],
    at: int,
    row: NDArray[np.int64],
    expert: NDArray[np.int16],
    slot: NDArray[np.int16],
    ref: int,
) -> int:
    """Read an object with its keys in any order: the position of its newline, or -1.

    If n_expert_used or n_tokens is missing, it follows from the number of experts; without both, the line is one token.
    It also refuses what is rare and takes much code: escapes, bytes above 126, unknown lists, objects and words,
    weights, and a key that occurs twice.
    """
    at = space(data, at)
    if data[at] != OPEN_OBJECT:
        return -1
    keys = 0
    n_ids = 0
    n_slots = 0
    while True:
        start = space(data, at + 1)
        at = text(data, start)
        if at < 0:
            return -1
        key = _known_key(data, start + 1, at - start - 2)
        at = space(data, at)
        if data[at] != COLON:
            return -1
        at = space(data, at + 1)
        if key < 0:
            at = text(data, at) if data[at] == QUOTE else number(data, at)
        elif keys >> key & 1 or key == WEIGHTS:
            return -1
        else:
            keys |= 1 << key
            if key == EXPERTS:
                n_ids, at = ids(data, at, expert, ref, 0)
            elif key == SLOTS:
                n_slots, at = ids(data, at, slot, ref, -1)
            else:
                value, at = _phase(data, at) if key == PHASE else integer(data, at)
                if value > LARGEST[key]:
                    return -1
                row[key] = value
        if at < 0:
            return -1
        at = space(data, at)
        if data[at] != COMMA:
            break
    if data[at] != CLOSE_OBJECT or keys & REQUIRED != REQUIRED:
        return -1
    if not keys >> N_TOKENS & 1:
        counted = keys >> N_EXPERT_USED & 1 and row[N_EXPERT_USED] > 0
        row[N_TOKENS] = n_ids // row[N_EXPERT_USED] if counted else 1
    if not keys >> N_EXPERT_USED & 1:
        row[N_EXPERT_USED] = n_ids // max(row[N_TOKENS], 1)
    at = space(data, at + 1)
    if data[at] != NEWLINE or not _fits(row[LAYER], row[N_EXPERT_USED], row[N_TOKENS]):
        return -1
    if n_ids != row[N_EXPERT_USED] * row[N_TOKENS] or (keys >> SLOTS & 1 and n_slots != n_ids):
        return -1
    row[KEYS] = keys
    return at


@jit
def parse_lines(
    data: NDArray[np.uint8],
    at: int,
    end: int,
    lines: int,
    table: NDArray[np.int64],
    expert: NDArray[np.int16],
    slot: NDArray[np.int16],
    call: int,
    ref: int,
) -> tuple[int, int, int, int]:
    """Parse whole lines from `at` on until `end` or until one is refused.

    data: u8, padded (see `_json_tokens`); `end` is the position after a newline.
    lines: newlines before `at` in the whole stream.
    table: i64 [calls, COLUMNS]; expert, slot: i16 [references]. Filled from `call` and `ref` on; large enough for the
        shortest lines and ids.
    Returns the new (at, lines, call, ref); at < end if the line at `at` is refused.
    """
    while at < end:
        row = table[call]
        after = _exact_line(data, at, row, expert, slot, ref)
        if after < 0:
            after = _any_line(data, at, row, expert, slot, ref)
        if after >= 0:
            row[LINE] = lines + 1
            ref += row[N_EXPERT_USED] * row[N_TOKENS]
            call += 1
        else:
            after = space(data, at)
            if data[after] != NEWLINE:
                break
        lines += 1
        at = after + 1
    return at, lines, call, ref
