"""Rows that say which token and layer they belong to, in any order, put together as the requests of a recording."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import BadInput


class TokenRows(NamedTuple):
    """Rows of routing: request, position and layer i64 [rows]; expert i64 [rows, width], weight f32 the same or None.

    position: the token's number in its request. rank: i64 [rows], the order of a token's rows; None: as they stand.
    """

    request: NDArray[np.int64]
    position: NDArray[np.int64]
    layer: NDArray[np.int64]
    expert: NDArray[np.int64]
    rank: NDArray[np.int64] | None = None
    weight: NDArray[np.float32] | None = None


class TokenArrays(NamedTuple):
    """One request: its number, its first token's position; ids, i16 (-1: none), and weights, [tokens, layers, k]."""

    request: int
    first: int
    expert: NDArray[np.int16]
    weight: NDArray[np.float32] | None


def token_arrays(rows: TokenRows, *, where: str) -> tuple[tuple[int, ...], list[TokenArrays]]:
    """The layer numbers and the requests in ascending order.

    Raises BadInput if tokens have different numbers of experts, or tokens of a request are missing in all layers.
    """
    layers, place = np.unique(rows.layer, return_inverse=True)
    keys = [place, rows.position, rows.request]
    order = np.lexsort(keys if rows.rank is None else [rows.rank, *keys])
    request, position, place = rows.request[order], rows.position[order], place[order]
    begins = np.ones(len(order), np.bool_)
    begins[1:] = (request[1:] != request[:-1]) | (position[1:] != position[:-1]) | (place[1:] != place[:-1])
    starts = np.flatnonzero(begins)
    each = np.diff(np.append(starts, len(order)))
    width = rows.expert.shape[1]
    if (odd := each != each[0]).any():
        at = int(starts[odd.argmax()])
        raise BadInput(
            f"{where}: token {position[at]} has {each[odd.argmax()] * width} experts in layer {layers[place[at]]}, and "
            f"token {position[0]} {each[0] * width} in layer {layers[place[0]]} (mixed top-k); the same number expected"
        )
    k = int(each[0]) * width
    found = []
    edges = np.append(np.flatnonzero(np.append(True, request[1:] != request[:-1])), len(order))
    for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        first = int(position[begin])
        tokens = int(position[end - 1]) - first + 1
        if len(seen := np.unique(position[begin:end])) < tokens:
            gap = int(seen[np.diff(seen).argmax()])
            raise BadInput(
                f"{where}: token {gap + 1} is missing after {gap}; every token expected, in order from the first"
            )
        cell = ((position[begin:end] - first) * len(layers) + place[begin:end])[:: int(each[0])]

        def put(values: NDArray[Any], empty: Any) -> NDArray[Any]:
            out = np.full((tokens * len(layers), k), empty)  # noqa: B023 - called in this round only
            out[cell] = values[order[begin:end]].reshape(-1, k)  # noqa: B023
            return out.reshape(tokens, len(layers), k)  # noqa: B023

        weight = None if rows.weight is None else put(rows.weight, np.float32(0))
        found.append(TokenArrays(int(request[begin]), first, put(rows.expert, np.int16(-1)), weight))
    return tuple(layers.tolist()), found
