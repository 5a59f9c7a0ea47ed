"""Rows and pairs become routed calls: shared by the readers of several formats."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import shown

ID_MAX = 32767


def run_starts(*columns: NDArray[Any]) -> NDArray[np.int64]:
    """The rows at which any of the columns changes, i64, beginning with row 0; empty if there are no rows."""
    if not len(columns[0]):
        return np.zeros(0, dtype=np.int64)
    begins = np.zeros(len(columns[0]), dtype=np.bool_)
    begins[0] = True
    for column in columns:
        begins[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(begins)


def with_end(starts: NDArray[np.int64], end: int) -> NDArray[np.int64]:
    """Offsets, i64 [starts + 1]: where each run starts, then the end."""
    return np.append(starts, np.int64(end)).astype(np.int64)


def ranges(begin: NDArray[np.int64], length: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers begin, begin + 1, … of each range, one range after the other, i64."""
    numbers: NDArray[np.int64] = np.arange(length.sum()) + np.repeat(begin - (np.cumsum(length) - length), length)
    return numbers


def uniform_top_k(offset: NDArray[np.int64], n_tokens: NDArray[np.int32]) -> int:
    """Experts per token if all calls with known tokens have the same number, else 0."""
    length = np.diff(offset)
    known = n_tokens > 0
    if not known.any() or (length[known] % n_tokens[known]).any():
        return 0
    per_token = length[known] // n_tokens[known]
    return int(per_token[0]) if (per_token == per_token[0]).all() else 0


def pair_array(pairs: Any) -> NDArray[np.int16]:
    """A JSON list of [layer, expert] pairs as i16 [pairs, 2].

    Raises ValueError, naming the pair, for anything but whole numbers 0..32767.
    """
    if not isinstance(pairs, list) or not pairs:
        raise ValueError("not a list of [layer, expert] pairs")
    try:
        flat = list(chain.from_iterable(pairs)) if set(map(len, pairs)) == {2} else []
    except TypeError:
        flat = []
    if set(map(type, flat)) == {int} and min(flat) >= 0 and max(flat) <= ID_MAX:
        return np.array(flat, np.int16).reshape(-1, 2)
    for position, pair in enumerate(pairs):
        if not (isinstance(pair, list) and len(pair) == 2):
            raise ValueError(f"pair {position} is {_short(pair)}, expected [layer, expert]")
        for name, value in zip(("layer", "expert"), pair, strict=True):
            if type(value) is not int or not 0 <= value <= ID_MAX:
                raise ValueError(f"pair {position}: {name} is {_short(value)}, expected a whole number 0..{ID_MAX}")
    raise ValueError("not a list of [layer, expert] pairs")


def token_ids(tokens: Any) -> tuple[list[int], int]:
    """The ids of a JSON list of tokens, one after another, and how many each token has; 0 without tokens.

    Raises ValueError, saying what was found, for anything but lists of one length with whole numbers 0..32767.
    """
    try:
        widths = {len(token) for token in tokens}
        ids = list(chain.from_iterable(tokens))
    except TypeError:
        raise ValueError(f"{shown(tokens, 40)}; expected a list of expert ids for each token") from None
    if len(widths) > 1 or 0 in widths:
        listed = " and ".join(map(str, sorted(widths)[:3]))
        raise ValueError(f"tokens of {listed} experts (mixed top-k); expected one number")
    check_whole(ids)
    return ids, widths.pop() if widths else 0


def check_whole(numbers: Sequence[Any]) -> None:
    """Raise ValueError for anything but whole numbers 0..32767."""
    if numbers and (set(map(type, numbers)) != {int} or min(numbers) < 0 or max(numbers) > ID_MAX):
        raise ValueError(f"{shown(numbers, 40)}; expected whole numbers 0 to {ID_MAX}")


def _short(value: Any) -> str:
    import orjson

    text = orjson.dumps(value).decode()
    return text if len(text) <= 40 else text[:37] + "..."
