"""Rows with a token and a layer, in any order, assembled into the requests of a recording."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import Conflict, Incomplete, Malformed, shown
from flashmoe_sim.trace.calls import run_starts, with_end
from flashmoe_sim.trace.requests import Hints, Request

TWICE = "one of them is there twice, or they differ in top-k; expected a row for each of the same number of experts"
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


def requests_of_rows(
    rows: TokenRows, prompt: NDArray[np.bool_] | None, *, hints: Hints, where: str
) -> tuple[tuple[int, ...], list[Request]]:
    """The layer numbers and the requests, in ascending order; ids are -1 where a token has no row in a layer.

    prompt: bool [rows], which tokens belong to a prompt; decoded tokens may be numbered on from it, or from 0 again.
    None: from the hints. A request in which a token comes again is several, one after another. Raises BadInput if
    tokens have different numbers of experts or are missing in all layers, if a token names an expert twice, and if
    nothing says which tokens are the prompt.
    """
    prompts: NDArray[np.int64] | None = None
    rows, prompt = _apart(rows, prompt)
    if prompt is not None:
        rows = rows._replace(request=np.unique(rows.request, return_inverse=True)[1])
        position, prompts = _counted_from_0(rows.request, rows.position, prompt)
        rows = rows._replace(position=position)
    layers, place = np.unique(rows.layer, return_inverse=True)
    keys = [place, rows.position, rows.request]
    order = np.lexsort(keys if rows.rank is None else [rows.rank, *keys])
    request, position, place = rows.request[order], rows.position[order], place[order]
    starts = run_starts(request, position, place)
    each = np.diff(with_end(starts, len(order)))
    width = rows.expert.shape[1]
    if (odd := each != each[0]).any():
        at = int(starts[odd.argmax()])
        raise Malformed(
            f"{where}: token {position[at]} has {each[odd.argmax()] * width} experts in layer {layers[place[at]]}, and "
            f"token {position[0]} {each[0] * width} in layer {layers[place[0]]}: {TWICE}"
        )
    if width == 1:
        _check_distinct(rows.expert[order, 0].reshape(-1, int(each[0])), position[starts], layers[place[starts]], where)
    requests = []
    for begin, end in pairwise(with_end(run_starts(request), len(order)).tolist()):
        first, number, some = int(position[begin]), int(request[begin]), order[begin:end]
        tokens = _tokens(position[begin:end], len(layers), where)
        cell = ((position[begin:end] - first) * len(layers) + place[begin:end])[:: int(each[0])]
        shape = tokens, len(layers), int(each[0]) * width
        requests.append(
            Request(
                expert=_in_cells(rows.expert[some], cell, shape, np.int16(-1)),
                weight=None if rows.weight is None else _in_cells(rows.weight[some], cell, shape, np.float32(0)),
                prompt=prompt_length(first + tokens, first, hints, where) if prompts is None else int(prompts[number]),
                start=first,
                where=f"{where}, request {number}",
            )
        )
    return tuple(layers.tolist()), requests


def _apart(rows: TokenRows, prompt: NDArray[np.bool_] | None) -> tuple[TokenRows, NDArray[np.bool_] | None]:
    """The rows, and `prompt`, with a request divided where a token that it has already begins another recording.

    If rows are in the order of their layers, each layer is divided alike; else rows are in the order of time. Rows of
    one expert without ranks can be in any order, as long as they are not in equal parts for each token.
    """
    order = np.argsort(rows.request, kind="stable")
    told = [rows.rank, None if prompt is None else prompt.astype(np.int64)]
    given = [rows.request, rows.layer, rows.position, *(column for column in told if column is not None)]
    columns = [column[order] for column in given]
    parts = np.arange(len(order))
    if rows.expert.shape[1] == 1 and rows.rank is None:
        parts = run_starts(*columns)
        length = np.diff(with_end(parts, len(order)))
        if length[0] == 1 or (length != length[0]).any():
            return rows, prompt
    cells = [column[parts] for column in columns]
    by_cell = np.lexsort(cells)
    again = np.ones(len(parts), np.bool_)
    again[run_starts(*(cell[by_cell] for cell in cells))] = False
    if not again.any():
        return rows, prompt
    before = np.zeros(len(parts), np.int64)  # the part with the same token
    before[by_cell[again]] = by_cell[np.flatnonzero(again) - 1]
    blocks = run_starts(*cells[:2])
    if len(blocks) > len(np.unique(np.stack(cells[:2]), axis=1).T):
        blocks = run_starts(cells[0])
    begins, begin = np.zeros(len(parts), np.int64), 0
    for part in np.sort(by_cell[again]).tolist():
        if before[part] >= begin:
            begins[part], begin = 1, part
    number = np.cumsum(begins)
    number -= np.repeat(number[blocks], np.diff(with_end(blocks, len(parts))))
    recording = np.repeat(number, np.diff(with_end(parts, len(order))))
    request = np.unique(np.stack((recording, columns[0])), axis=1, return_inverse=True)[1].reshape(-1)
    ordered: list[Any] = [None if column is None else column[order] for column in rows]
    divided = TokenRows(*ordered)
    return divided._replace(request=request), None if prompt is None else prompt[order]


def _check_distinct(
    expert: NDArray[np.int64], position: NDArray[np.int64], layer: NDArray[np.int64], where: str
) -> None:
    """Raise BadInput for a token that names an expert twice. expert: i64 [tokens x layers, k]."""
    ranked = np.sort(expert, axis=1)
    if (twice := (ranked[:, 1:] == ranked[:, :-1]).any(axis=1)).any():
        at = int(twice.argmax())
        raise Malformed(
            f"{where}: token {position[at]} names an expert twice in layer {layer[at]}: {shown(expert[at].tolist())}; "
            "is the token there twice? expected each token once; give the column that tells requests apart"
        )


def _tokens(position: NDArray[np.int64], layers: int, where: str) -> int:
    """The number of tokens of a request; raises BadInput if one is missing. position: of each row, ascending."""
    tokens = int(position[-1] - position[0]) + 1
    if len(seen := np.unique(position)) < tokens:
        gap = int(seen[np.diff(seen).argmax()])
        raise Malformed(
            f"{where}: token {gap + 1} is missing after {gap}; expected every token, in order from the first"
        )
    if tokens * layers > MOST_SPARSE * len(position) + MORE_CELLS:
        raise Malformed(
            f"{where}: {len(position):,} rows for {tokens:,} tokens of {layers:,} layers: most are missing; "
            "expected a row for every token and layer"
        )
    return tokens


def _in_cells(values: NDArray[Any], cell: NDArray[np.int64], shape: tuple[int, int, int], empty: Any) -> NDArray[Any]:
    """The values of rows as [tokens, layers, k]. cell: i64, the place of each k values among tokens and layers."""
    out = np.full((shape[0] * shape[1], shape[2]), empty)
    out[cell] = values.reshape(-1, shape[2])
    return out.reshape(shape)


def prompt_length(tokens: int, start: int, hints: Hints, where: str) -> int:
    """The tokens of a prompt by the hints; tokens: of the request, the first `start` of which have no rows."""
    if hints.prompt_tokens is None and hints.phase is None:
        raise Incomplete(
            f"{where}: {tokens:,} tokens, but nothing says which of them are the prompt; give --prompt-tokens P or "
            "--phase decode to `sim trace import`"
        )
    if hints.prompt_tokens is None:
        return tokens if hints.phase == "prompt" else start
    if hints.prompt_tokens > tokens:
        raise Conflict(f"{where}: {tokens:,} tokens, but a prompt of {hints.prompt_tokens:,}; check --prompt-tokens")
    return hints.prompt_tokens


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
