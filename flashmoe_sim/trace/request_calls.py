"""Requests as engines return them, experts by token and layer, turned into the engine's routed calls.

An engine returns one array per request: `[rows, layers, k]`, a row for every token that it fed to the model, which is
all but the last one generated. The meaning of a row follows from its place, so rows are counted strictly: a shift by
one token could not be noticed later. Which tokens shared a pass is not recorded. We assume that a prompt is read in
chunks, a generated token is decoded alone, and requests are served one after another; notes say so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim._jit import jit
from flashmoe_sim.io.errors import Conflict, Malformed, shown
from flashmoe_sim.io.notes import DROPPED, Note
from flashmoe_sim.trace.calls import ID_MAX
from flashmoe_sim.trace.check import ask_first_id
from flashmoe_sim.trace.cut import shown_layers
from flashmoe_sim.trace.lines import counted
from flashmoe_sim.trace.requests import DEFAULTS, PREFILL_CHUNK, Hints, ReadOptions, Request
from flashmoe_sim.trace.routing import PHASE_DECODE, PHASE_PROMPT, RoutingTrace, infer_n_experts, uniform_trace

ROUTED, REPEATED, MISSING = 0, 1, 2
SHOWN_IDS = 20


def trace_of_requests(
    requests: Sequence[Request],
    *,
    format: str,
    name: str,
    options: ReadOptions = DEFAULTS,
    notes: Sequence[str] = (),
) -> RoutingTrace:
    """The calls of all requests, one request after another; each is a sequence.

    If options are lenient, tokens without routing are left out and counted in the notes.
    Raises BadInput if the requests differ in layers or experts per token, rows do not add up, a token has no routing,
    or the model lacks an id.
    """
    hints = options.hints
    if not requests:
        raise Malformed(f"{name}: holds no request with routing in it; record it again")
    if hints.shared:
        requests = [request.without(hints.shared) for request in requests]
    shape = _one_shape(requests)
    numbers, assumed = layer_numbers(shape[0], moe_only=requests[0].moe_only, hints=hints, where=requests[0].where)
    firsts = [request.first for request in requests]
    places, rows, left_out = _routed_rows(
        requests, firsts, numbers=numbers, missing=hints.missing, lenient=options.lenient
    )
    layers = numbers[places]
    check_layers(layers, hints, where=requests[0].where)
    chunk = hints.prefill_chunk or PREFILL_CHUNK
    by_request = [_steps(kept, one.prompt - at, chunk) for one, at, kept in zip(requests, firsts, rows, strict=True)]
    tokens, phase = (np.concatenate(column) for column in zip(*by_request, strict=True))
    steps = len(tokens)
    if not steps:
        raise Malformed(
            f"{name}: no token of it was computed: all rows are of cached tokens; record it without a cache"
        )
    expert = np.empty(int(tokens.sum()) * len(layers) * shape[1], np.int16)
    weighed = all(request.weight is not None for request in requests)
    weight = np.empty(len(expert), np.float32) if weighed else None
    at = 0
    for request, kept, (of_request, _) in zip(requests, rows, by_request, strict=True):
        end = at + len(kept) * len(layers) * shape[1]
        lay_out(expert[at:end], request.expert, kept, places, of_request)
        if weight is not None and request.weight is not None:
            lay_out(weight[at:end], request.weight, kept, places, of_request)
        at = end
    n_experts = infer_n_experts(layers.astype(np.int16), expert)
    if hints.model:
        n_experts = {layer: hints.model[layer] for layer in n_experts}
    trace = uniform_trace(
        np.tile(layers, steps),
        np.repeat(tokens, len(layers)),
        expert,
        shape[1],
        n_experts=n_experts,
        n_experts_known=bool(hints.model),
        weight=weight,
        phase=np.repeat(phase, len(layers)),
        sequence=np.repeat(np.arange(len(rows), dtype=np.int32), [len(layers) * len(one) for one, _ in by_request]),
        step=np.repeat(np.arange(steps, dtype=np.int32), len(layers)),
        format=format,
        name=name,
        notes=(*assumed, *left_out, *_notes(requests, hints, chunked=bool((phase == PHASE_PROMPT).any())), *notes),
    )
    if hints.model:
        check_ids(trace, name)
    return trace


@jit
def lay_out(out: Any, values: Any, rows: Any, layers: Any, tokens: Any) -> None:
    """Put the chosen rows and layers of values [rows, layers, k] in the order of calls: step by step, layer by layer.

    tokens: i32 [steps], how many rows each step has.
    """
    at = first = 0
    for count in tokens:
        for layer in layers:
            for row in rows[first : first + count]:
                for place in range(values.shape[2]):
                    out[at] = values[row, layer, place]
                    at += 1
        first += count


@jit
def mark_repeats(expert: Any, state: Any, row_of: Any) -> None:
    """Set the state of rows with an id twice. row_of: i64 [ids], -1: scratch; other ids are not looked at."""
    for row in range(len(expert)):
        for place in range(expert.shape[1]):
            key = expert[row, place]
            if 0 <= key < len(row_of):
                if row_of[key] == row:
                    state[row] = REPEATED
                row_of[key] = row


def _one_shape(requests: Sequence[Request]) -> tuple[int, int]:
    """Layers and experts per token, the same for all requests."""
    first = requests[0]
    for request in requests:
        if request.expert.ndim != 3 or request.expert.dtype.kind not in "iu" or 0 in request.expert.shape[1:]:
            shape = list(request.expert.shape)
            raise Malformed(
                f"{request.where}: routing is {request.expert.dtype} {shape}; expected whole numbers "
                "[tokens, layers, k]"
            )
        for axis, what in ((1, "layers"), (2, "experts per token (mixed top-k)")):
            one, other = first.expert.shape[axis], request.expert.shape[axis]
            if one != other:
                raise Conflict(
                    f"{request.where}: {other} {what}, but {one} in {first.where}; give requests of one model"
                )
        if request.moe_only != first.moe_only:
            raise Conflict(
                f"{first.where} and {request.where}: one has only the routed layers, as vLLM 0.21 writes them, the "
                "other has all; give files of one version"
            )
    return first.expert.shape[1], first.expert.shape[2]


def _steps(rows: NDArray[np.int64], prompt_end: int, chunk: int) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """The tokens and the phase of each step of a request. rows: the computed ones, of the prompt before prompt_end."""
    prompt = int(np.searchsorted(rows, prompt_end))
    chunks = np.full(-(-prompt // chunk), chunk, np.int32)
    chunks[prompt // chunk :] = prompt % chunk
    tokens = np.append(chunks, np.ones(len(rows) - prompt, np.int32))
    return tokens, np.where(np.arange(len(tokens)) < len(chunks), PHASE_PROMPT, PHASE_DECODE).astype(np.uint8)


def _notes(requests: Sequence[Request], hints: Hints, *, chunked: bool) -> list[str]:
    notes = []
    if chunked:
        chunk = hints.prefill_chunk
        how = "" if chunk else " (llama.cpp's default; --prefill-chunk gives the server's)"
        notes.append(f"prompts are assumed to be read in chunks of {chunk or PREFILL_CHUNK:,} tokens{how}")
    if len(requests) > 1:
        notes.append(
            f"{len(requests):,} requests, one after another: which tokens shared a pass was not recorded "
            "(`sim trace merge` serves several at once)"
        )
    if requests[0].counted:
        notes.append(
            f"the responses do not say how many layers there are: {requests[0].expert.shape[1]} follow from their "
            "tokens; --model checks it"
        )
    early = [request for request in requests if request.start is None and request.first]
    if early:
        rows = sum(request.first for request in early)
        notes.append(
            f"{len(early):,} of the requests lack {rows:,} rows at the beginning of their prompts: "
            "assumed to be cached tokens"
        )
    return notes


def layer_numbers(count: int, *, moe_only: bool, hints: Hints, where: str) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """The model's number of each layer of an array, -1 for a layer to leave out; and notes on what was assumed."""
    known = hints.moe_layers or (tuple(sorted(hints.model)) if hints.model else None)
    if count > ID_MAX + 1:
        raise Malformed(f"{where}: {count:,} layers; expected at most {ID_MAX + 1:,}: the axes are in another order")
    every = np.arange(count)
    if known is None:
        if not moe_only:
            return every, ()
        return every, (
            f"only routed layers are recorded; they are numbered 0-{count - 1}; "
            "give --model or --moe-layers for the model's own numbers",
        )
    if len(known) == count:
        return np.array(known), ()
    if not moe_only and max(known) < count:
        return np.where(np.isin(every, known), every, -1) if hints.moe_layers else every, ()
    raise Conflict(
        f"{where}: {count} layers, but the model routes in {len(known)}: {shown_layers(known)}; "
        "check --model or --moe-layers"
    )


def check_layers(layers: NDArray[np.int64], hints: Hints, *, where: str) -> None:
    """Raise BadInput if a layer with routing is not a routed layer of the model."""
    if hints.model and (other := sorted(set(layers.tolist()) - set(hints.model))):
        raise Conflict(
            f"{where}: layers {shown_layers(other)} are routed, but the model routes in {shown_layers(hints.model)}; "
            "check --model and the sizes of the array"
        )


def check_ids(trace: RoutingTrace, name: str) -> None:
    """Raise BadInput for an id that its layer does not have, naming the first."""
    experts = np.array([trace.n_experts[layer] for layer in trace.layers])
    if int(trace.expert.max()) < experts.min():
        return
    limit = np.repeat(experts[np.searchsorted(trace.layers, trace.layer)], np.diff(trace.offset))
    at = int((trace.expert >= limit).argmax())
    if trace.expert[at] >= limit[at]:
        call = int(np.searchsorted(trace.offset, at, side="right")) - 1
        raise Conflict(
            f"{name}: expert {trace.expert[at]} in layer {trace.layer[call]}, which has {limit[at]} in the model, "
            "counted from 0; check --model and the sizes of the array"
            + ask_first_id(trace, refused=int(trace.expert.max()), experts=int(limit[at]))
        )


def _routed_rows(
    requests: Sequence[Request],
    firsts: Sequence[int],
    *,
    numbers: NDArray[np.int64],
    missing: int | None,
    lenient: bool,
) -> tuple[NDArray[np.int64], list[NDArray[np.int64]], list[str]]:
    """The places of the routed layers, i64, the computed rows of every request, i64, and notes on what is left out.

    A router never chooses an expert twice, so k ids with a repeat are not routing (with one expert per token, only a
    layer that is always 0 can be recognised). A layer in which all tokens have the same such ids is not routed and left
    out. Negative rows at the beginning of a prompt are cached tokens. Any other token without routing is refused, or
    left out if lenient. firsts: the token of each request's first row. numbers: the model's number of each layer, -1
    for a layer to leave out.
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
        raise Malformed(
            f"{requests[0].where}: no token of it has routing, every row is {_shown(requests[0], 0, 0)} or the like; "
            "the capture was empty: check that the engine records this model, and its version"
        )
    layers = np.flatnonzero(wanted)
    kept = _Kept(lenient)
    rows = [
        kept.rows(request, first, state[:, layers] if len(layers) < state.shape[1] else state, layers, numbers)
        for request, first, state in zip(requests, firsts, states, strict=True)
    ]
    notes = kept.notes()
    if unrouted := numbers[~held & (numbers >= 0)].tolist():
        plural = "layer" if len(unrouted) == 1 else "layers"
        notes.insert(0, f"{plural} {shown_layers(unrouted)} left out: no routing in any token, as in dense layers")
    return layers, rows, notes


def _states(request: Request, missing: int | None) -> NDArray[np.uint8]:
    """Whether the ids of each row and layer are ROUTED, REPEATED or MISSING, u8 [rows, layers].

    Raises BadInput for an id that is out of range for a trace.
    """
    expert = request.expert
    rows, layers, k = expert.shape
    state = np.zeros((rows, layers), np.uint8)
    if not rows:
        return state
    least, largest = 0 if expert.dtype.kind == "u" else int(expert.min()), int(expert.max())
    if largest > ID_MAX and largest != missing:
        raise Malformed(
            f"{request.where}: expert {largest:,}; expected at most {ID_MAX:,}: no routing, or of another dtype"
        )
    mark_repeats(expert.reshape(-1, k), state.reshape(-1), np.full(min(largest, ID_MAX) + 1, -1, np.int64))
    if least < 0 or missing is not None:
        absent = (expert < 0) | (expert == (-1 if missing is None else missing))
        state[absent.all(axis=2)] = MISSING
        if (partly := absent.any(axis=2) & (state != MISSING)).any():
            row, layer = (int(at[0]) for at in np.nonzero(partly))
            raise Malformed(
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
        raise Malformed(
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
        self,
        request: Request,
        first: int,
        state: NDArray[np.uint8],
        layers: NDArray[np.int64],
        numbers: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """The rows of a request that were computed and have routing, i64. state: u8 [rows, layers].

        layers: their places in the request's array. numbers: the model's number of each layer of the array.
        """
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
            place = layers[layer]
            ids = request.expert[row, place]
            twice = state[row, layer] == REPEATED and (ids != ids[0]).any()
            what, why = (
                (
                    f"names an expert twice in layer {numbers[place]}: {_few(ids)}",
                    "a router never does: record it again",
                )
                if twice
                else (f"has no routing in layer {numbers[place]}", "the capture lost it: record it again")
            )
            found = f"{request.where}: token {first + row} {what} ({int(bad.sum()):,} such tokens)"
            if not self.lenient:
                raise Malformed(f"{found}; {why}, or leave such tokens out with --lenient")
            self.example = self.example or found
            self.dropped += int(bad.sum())
        return begin + np.flatnonzero(~bad)

    def notes(self) -> list[str]:
        notes: list[str] = []
        if self.cached:
            rows = counted(self.cached, "row")
            notes.append(f"{rows} of cached tokens left out: they were not computed in these requests")
        if self.dropped:
            tokens = counted(self.dropped, "token")
            notes.append(Note(DROPPED, f"{tokens} without routing left out; the first: {self.example}"))
        return notes


def _shown(request: Request, row: int, layer: int) -> str:
    return _few(request.expert[row, layer]) if request.rows else "[]"


def _few(ids: NDArray[Any]) -> str:
    """The first of a row's ids, for a message: a table that was misread can have millions in a row."""
    return shown(ids[:SHOWN_IDS].tolist())
