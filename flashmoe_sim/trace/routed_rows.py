"""Which tokens and layers of recorded requests have routing, rather than zeros, repeats or negative ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import BadInput, shown
from flashmoe_sim.io.notes import DROPPED, Note
from flashmoe_sim.trace.calls import ID_MAX
from flashmoe_sim.trace.cut import shown_layers
from flashmoe_sim.trace.requests import Request

ROUTED, REPEATED, MISSING = 0, 1, 2
SHOWN_IDS = 20


@dataclass(frozen=True, eq=False)
class RoutedRows:
    """layers: i64, the places of the routed layers. rows: for every request, i64, the computed rows."""

    layers: NDArray[np.int64]
    rows: list[NDArray[np.int64]]
    notes: tuple[str, ...]


def routed_rows(
    requests: Sequence[Request],
    firsts: Sequence[int],
    *,
    numbers: NDArray[np.int64],
    missing: int | None,
    lenient: bool,
) -> RoutedRows:
    """The parts of the requests to keep; firsts: the token of each request's first row.

    A router never chooses an expert twice, so k ids with a repeat are not routing (with one expert per token, only a
    layer that is always 0 can be recognised). A layer in which all tokens have the same such ids is not routed and left
    out. Negative rows at the beginning of a prompt are cached tokens. Any other token without routing is refused, or
    left out if lenient. numbers: the model's number of each layer, -1 for a layer to leave out.
    Raises BadInput for such a token, and if no layer has routing.
    """
    states = [_states(request, missing) for request in requests]
    held = np.zeros(len(numbers), np.bool_)
    for state in states:
        held |= (state == ROUTED).any(axis=0) if state.any() else len(state) > 0
    if requests[0].expert.shape[2] == 1:
        held &= np.array([any((one.expert[:, layer] != 0).any() for one in requests) for layer in range(len(numbers))])
    wanted = held & (numbers >= 0)
    for layer in np.flatnonzero(~held & (numbers >= 0)):
        _check_unrouted(requests, states, int(layer), int(numbers[layer]))
    if not wanted.any():
        raise BadInput(
            f"{requests[0].where}: no token of it has routing, every row is {_shown(requests[0], 0, 0)} or the like; "
            "the capture was empty: check that the engine records this model, and its version"
        )
    layers = np.flatnonzero(wanted)
    kept = _Kept(lenient)
    rows = [
        kept.rows(request, first, state[:, layers] if len(layers) < state.shape[1] else state, numbers[layers])
        for request, first, state in zip(requests, firsts, states, strict=True)
    ]
    notes = kept.notes()
    if unrouted := numbers[~held & (numbers >= 0)].tolist():
        plural = "layer" if len(unrouted) == 1 else "layers"
        notes.insert(0, f"{plural} {shown_layers(unrouted)} left out: no routing in any token, as in dense layers")
    return RoutedRows(layers, rows, tuple(notes))


def _states(request: Request, missing: int | None) -> NDArray[np.uint8]:
    """Whether the ids of each row and layer are ROUTED, REPEATED or MISSING, u8 [rows, layers].

    Raises BadInput for an id that is out of range for a trace.
    """
    from flashmoe_sim.trace.counting import find_repeats

    expert = request.expert
    rows, layers, k = expert.shape
    state = np.zeros((rows, layers), np.uint8)
    if not rows:
        return state
    least, largest = 0 if expert.dtype.kind == "u" else int(expert.min()), int(expert.max())
    if largest > ID_MAX and largest != missing:
        raise BadInput(
            f"{request.where}: expert {largest:,}; expected at most {ID_MAX:,}: no routing, or of another dtype"
        )
    if k > 1:
        find_repeats(expert.reshape(-1, k), np.full(largest + 1, -1), state.reshape(-1))
    if least < 0 or missing is not None:
        absent = (expert < 0) | (expert == (-1 if missing is None else missing))
        state[absent.all(axis=2)] = MISSING
        if (partly := absent.any(axis=2) & (state != MISSING)).any():
            row, layer = (int(at[0]) for at in np.nonzero(partly))
            raise BadInput(
                f"{request.where}: row {row} of layer {layer} is {_shown(request, row, layer)}: some experts are "
                "missing (mixed top-k); expected the same number for every token"
            )
    return state


def _check_unrouted(requests: Sequence[Request], states: Sequence[NDArray[np.uint8]], layer: int, number: int) -> None:
    """Raise BadInput if the ids of a layer without routing differ: then it is not a dense layer."""
    repeated = [
        request.expert[state[:, layer] == REPEATED, layer] for request, state in zip(requests, states, strict=True)
    ]
    ids = np.concatenate(repeated)
    differ = (ids != ids[:1]).any(axis=1)
    if differ.any():
        raise BadInput(
            f"{requests[0].where}: every token of layer {number} names an expert twice, such as "
            f"{_few(ids[differ.argmax()])}, which a router never does; check the order of the axes and --top-k"
        )


class _Kept:
    """Chooses rows, and counts what it leaves out."""

    def __init__(self, lenient: bool) -> None:
        self.lenient = lenient
        self.cached = self.dropped = 0
        self.example = ""

    def rows(
        self, request: Request, first: int, state: NDArray[np.uint8], numbers: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """The rows of a request that were computed and have routing, i64."""
        begin = min(max(request.cached - first, 0), len(state))
        if not state.any():
            self.cached += begin
            return np.arange(begin, len(state))
        in_prompt = max(request.prompt - first, 0)
        absent = (state == MISSING).all(axis=1)
        leading = int(np.argmin(absent[:in_prompt])) if not absent[:in_prompt].all() else min(in_prompt, len(state))
        begin = max(begin, leading)
        self.cached += begin
        bad = (state[begin:] != ROUTED).any(axis=1)
        if bad.any():
            row = begin + int(bad.argmax())
            layer = int((state[row] != ROUTED).argmax())
            found = (
                f"{request.where}: token {first + row} has no routing in layer {numbers[layer]}"
                f" ({int(bad.sum()):,} such tokens)"
            )
            if not self.lenient:
                raise BadInput(
                    f"{found}; the capture lost it: record it again, or leave such tokens out with --lenient"
                )
            self.example = self.example or found
            self.dropped += int(bad.sum())
        return begin + np.flatnonzero(~bad)

    def notes(self) -> list[str]:
        notes: list[str] = []
        if self.cached:
            plural = "row" if self.cached == 1 else "rows"
            notes.append(
                f"{self.cached:,} {plural} of cached tokens left out: they were not computed in these requests"
            )
        if self.dropped:
            plural = "token" if self.dropped == 1 else "tokens"
            notes.append(
                Note(DROPPED, f"{self.dropped:,} {plural} without routing left out; the first: {self.example}")
            )
        return notes


def _shown(request: Request, row: int, layer: int) -> str:
    return _few(request.expert[row, layer]) if request.rows else "[]"


def _few(ids: NDArray[Any]) -> str:
    """The first of a row's ids, for a message: a table that was misread can have millions in a row."""
    return shown(ids[:SHOWN_IDS].tolist())
