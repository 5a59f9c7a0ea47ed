"""Damaging an input: bytes changed, taken out, put in, repeated and moved."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import strategies as st

KINDS = ("flip", "set", "delete", "insert", "repeat", "token", "cut")
_TOKEN = re.compile(rb'"[^"]*"|[\w.+-]+')


class Edit(NamedTuple):
    """One damage. at: where, as a share of the length. value: what is put in, or how much is taken out."""

    kind: str
    at: float
    value: bytes


def apply(data: bytes, edits: Sequence[Edit]) -> bytes:
    """The input with each damage in turn."""
    for kind, share, value in edits:
        at = int(share * len(data))
        length = len(value)
        if kind == "flip" and at < len(data):
            data = data[:at] + bytes([data[at] ^ (1 << value[0] % 8)]) + data[at + 1 :]
        elif kind == "set":
            data = data[:at] + value + data[at + length :]
        elif kind == "delete":
            data = data[:at] + data[at + length :]
        elif kind == "insert":
            data = data[:at] + value + data[at:]
        elif kind == "repeat":
            data = data[: at + length] + data[at:]
        elif kind == "token":  # a number, a word or a text becomes another one
            tokens = [found.span() for found in _TOKEN.finditer(data)]
            if tokens:
                begin, end = tokens[int(share * len(tokens))]
                data = data[:begin] + value + data[end:]
        elif kind == "cut":
            data = data[:at]
    return data


def edits(words: Sequence[bytes]) -> st.SearchStrategy[list[Edit]]:
    """Damages that Hypothesis can make smaller; words are put in as they are."""
    value = st.binary(min_size=1, max_size=8)
    if words:
        value |= st.sampled_from(words)
    share = st.floats(0, 1, exclude_max=True)
    return st.lists(st.builds(Edit, st.sampled_from(KINDS), share, value), min_size=1, max_size=4)


def damaged(data: bytes, words: Sequence[bytes], rng: random.Random) -> bytes:
    """The same by chance, and fast."""
    made = []
    own = _TOKEN.findall(data)
    for _ in range(rng.choice((1, 1, 2, 3, 6))):
        known = own if own and rng.random() < 0.4 else words
        value = rng.choice(known) if known and rng.random() < 0.7 else rng.randbytes(rng.choice((1, 1, 2, 4, 8)))
        made.append(Edit(rng.choices(KINDS, (3, 3, 3, 4, 2, 6, 0.3))[0], rng.random(), value))
    return apply(data, made)
