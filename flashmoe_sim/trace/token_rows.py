"""Rows with a token and a layer, in any order, assembled into the requests of a recording."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.trace.requests import Hints, Request

MOST_SPARSE, MORE_CELLS = 8, 1 << 16  # cells per row: some engines compute a prompt's last layer once


class TokenRows(NamedTuple):
    """Rows of routing: request, position and layer i64 [rows]; expert i64 [rows, width], weight f32 the same or None.

    position: the token's number in its request. rank: i64 [rows], the order of a token's rows; None: as given.
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


def requests_of_rows(
    rows: TokenRows, prompt: NDArray[np.bool_] | None, *, hints: Hints, where: str
) -> tuple[tuple[int, ...], list[Request]]:
    """The layer numbers and the requests.

    prompt: bool [rows], which tokens belong to a prompt; decoded tokens may be numbered on from it, or from 0 again.
    None: from the hints. Raises BadInput like `token_arrays`, and if nothing says which tokens are the prompt.
    """
    prompts: NDArray[np.int64] | None = None
    if prompt is not None:
        rows = rows._replace(request=np.unique(rows.request, return_inverse=True)[1])
        position, prompts = _counted_from_0(rows.request, rows.position, prompt)
        rows = rows._replace(position=position)
    layers, found = token_arrays(rows, where=where)
    requests = []
    for one in found:
        tokens = one.first + len(one.expert)
        length = prompt_length(tokens, one.first, hints, where) if prompts is None else int(prompts[one.request])
        requests.append(
            Request(
                expert=one.expert,
                weight=one.weight,
                prompt=length,
                start=one.first,
                where=f"{where}, request {one.request}",
            )
        )
    return layers, requests


def prompt_length(tokens: int, start: int, hints: Hints, where: str) -> int:
    """The tokens of a prompt by the hints; tokens: of the request, the first `start` of which have no rows."""
    if hints.prompt_tokens is None and hints.phase is None:
        raise BadInput(
            f"{where}: {tokens:,} tokens, but nothing says which of them are the prompt; give --prompt-tokens P or "
            "--phase decode to `sim trace import`"
        )
    if hints.prompt_tokens is None:
        return tokens if hints.phase == "prompt" else start
    if hints.prompt_tokens > tokens:
        raise BadInput(f"{where}: {tokens:,} tokens, but a prompt of {hints.prompt_tokens:,}; check --prompt-tokens")
    return hints.prompt_tokens


def token_arrays(rows: TokenRows, *, where: str) -> tuple[tuple[int, ...], list[TokenArrays]]:
    """The layer numbers and the requests in ascending order.

    Raises BadInput if tokens have different numbers of experts, or are missing in all layers.
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
            f"token {position[0]} {each[0] * width} in layer {layers[place[0]]} (mixed top-k); expected the same number"
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
                f"{where}: token {gap + 1} is missing after {gap}; expected every token, in order from the first"
            )
        if tokens * len(layers) > MOST_SPARSE * (end - begin) + MORE_CELLS:
            raise BadInput(
                f"{where}: {end - begin:,} rows for {tokens:,} tokens of {len(layers):,} layers: most are missing; "
                "expected a row for every token and layer"
            )
        cell = ((position[begin:end] - first) * len(layers) + place[begin:end])[:: int(each[0])]

        def put(values: NDArray[Any], empty: Any) -> NDArray[Any]:
            out = np.full((tokens * len(layers), k), empty)  # noqa: B023 - called in this round only
            out[cell] = values[order[begin:end]].reshape(-1, k)  # noqa: B023
            return out.reshape(tokens, len(layers), k)  # noqa: B023

        weight = None if rows.weight is None else put(rows.weight, np.float32(0))
        found.append(TokenArrays(int(request[begin]), first, put(rows.expert, np.int16(-1)), weight))
    return tuple(layers.tolist()), found


def _counted_from_0(
    request: NDArray[np.int64], position: NDArray[np.int64], prompt: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions from the prompt's first token on, even if decoded tokens count from 0; and the prompts' lengths."""
    count, most = int(request[-1]) + 1, np.iinfo(np.int64).max
    first, end, decoded = np.full(count, most), np.zeros(count, np.int64), np.full(count, most)
    np.minimum.at(first, request[prompt], position[prompt])
    np.minimum.at(decoded, request[~prompt], position[~prompt])
    origin = np.where(first < 0, first, 0)
    end[first < most] = -most
    np.maximum.at(end, request[prompt], position[prompt] + 1)
    again = np.where((decoded < most) & ((decoded < end) | (first == most)), end - decoded, 0)
    return position - origin[request] + np.where(prompt, 0, again[request]), end - np.where(first < most, origin, 0)
