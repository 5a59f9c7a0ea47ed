"""Requests as engines return them, experts by token and layer, turned into the engine's routed calls.

An engine returns one array per request: `[rows, layers, k]`, a row for every token that it fed to the model, which is
all but the last one generated. The meaning of a row follows from its place, so rows are counted strictly: a shift by
one token could not be noticed later. Which tokens shared a pass is not recorded. We assume that a prompt is read in
chunks, a generated token is decoded alone, and requests are served one after another; notes say so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.trace.request_layers import check_ids, check_layers, layer_numbers
from flashmoe_sim.trace.routed_rows import RoutedRows, routed_rows
from flashmoe_sim.trace.routing import PHASE_DECODE, PHASE_PROMPT, RoutingTrace, infer_n_experts

PREFILL_CHUNK = 512


@dataclass(frozen=True, kw_only=True)
class Hints:
    """What the user says about a file that the file does not record itself.

    prefill_chunk: prompt tokens that one pass reads; None for PREFILL_CHUNK, llama.cpp's default. moe_layers: the
    model's layer numbers of an array's layers, or of its routed layers.
    model: experts of each routed layer of the model, by layer number.
    n_layers, top_k: sizes of an array sent without its shape.
    prompt_tokens: tokens of the prompt, only for arrays. phase: "prompt" or "decode" if all tokens have that phase.
    start: tokens before the first row. missing: an id that means no routing, beside all negative ones. axes: the axes
    of an array in order: request, token, layer, k. array, weights_array: names in an archive.
    """

    prefill_chunk: int | None = None
    moe_layers: tuple[int, ...] | None = None
    model: Mapping[int, int] | None = None
    n_layers: int | None = None
    top_k: int | None = None
    prompt_tokens: int | None = None
    phase: str | None = None
    start: int | None = None
    missing: int | None = None
    axes: tuple[str, ...] | None = None
    array: str | None = None
    weights_array: str | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Request:
    """One request.

    expert: integers [rows, layers, k]; row i is token `start + i` of prompt and answer. Negative: no routing.
    prompt, generated: tokens of the prompt and of the answer; generated None if unknown.
    start: tokens before the first row; if None (unknown), the last row is assumed to be the last token fed. cached:
    tokens at the beginning that were not computed: their rows are left out. moe_only: whether the array has only the
    model's routed layers, not all layers. counted: whether the number of layers was derived from the number of tokens.
    weight: f32 [rows, layers, k], gate weights. where: how messages name the request.
    arrival_s: when it arrived, on any clock; None if unknown.
    """

    expert: NDArray[Any]
    prompt: int
    generated: int | None = None
    start: int | None = None
    cached: int = 0
    moe_only: bool = False
    counted: bool = False
    weight: NDArray[Any] | None = None
    where: str = "request"
    arrival_s: float | None = None

    @property
    def rows(self) -> int:
        return len(self.expert)

    @property
    def first(self) -> int:
        """The place of the first row among the tokens of the request.

        Raises BadInput if the rows do not match the tokens fed.
        """
        if self.generated is None:
            start = self.start or 0
            if start + self.rows < self.prompt - 1:
                raise BadInput(
                    f"{self.where}: {self.rows:,} rows of routing from token {start:,} on, but {self.prompt:,} prompt "
                    "tokens; the recording is incomplete, or this is the number of another request"
                )
            return start
        fed = self.prompt + self.generated - 1  # also for a prompt alone: the last token is fed, but not recorded
        start = fed - self.rows if self.start is None else self.start
        if start + self.rows != fed or not 0 <= start <= self.prompt:
            raise BadInput(
                f"{self.where}: {self.rows:,} rows of routing, but {self.prompt:,} prompt tokens and "
                f"{self.generated:,} generated make {fed:,} tokens fed, {self.start or 0:,} of them before the first "
                "row; the recording is incomplete, or these are the numbers of another request"
            )
        return start


def trace_of_requests(
    requests: Sequence[Request],
    *,
    format: str,
    name: str,
    hints: Hints | None = None,
    lenient: bool = False,
    notes: Sequence[str] = (),
) -> RoutingTrace:
    """The calls of all requests, one request after another; each is a sequence.

    lenient: leave out tokens without routing, and count them in the notes.
    Raises BadInput if the requests differ in layers or experts per token, rows do not add up, a token has no routing,
    or the model lacks an id.
    """
    from flashmoe_sim.trace._row_kernels import lay_out_into

    hints = hints or Hints()
    if not requests:
        raise BadInput(f"{name}: holds no request with routing in it; record it again")
    shape = _one_shape(requests)
    numbers, assumed = layer_numbers(shape[0], moe_only=requests[0].moe_only, hints=hints, where=requests[0].where)
    firsts = [request.first for request in requests]
    found = routed_rows(requests, firsts, numbers=numbers, missing=hints.missing, lenient=lenient)
    layers = numbers[found.layers]
    check_layers(layers, hints, where=requests[0].where)
    chunk = hints.prefill_chunk or PREFILL_CHUNK
    steps = _Steps.of(requests, firsts, found, chunk)
    tokens = int(steps.tokens.sum())
    if not tokens:
        raise BadInput(f"{name}: no token of it was computed: all rows are of cached tokens; record it without a cache")
    expert = np.empty(tokens * len(layers) * shape[1], np.int16)
    weighed = all(request.weight is not None for request in requests)
    weight = np.empty(len(expert), np.float32) if weighed else None
    at = 0
    for request, rows, of_request in zip(requests, found.rows, steps.by_request, strict=True):
        end = at + len(rows) * len(layers) * shape[1]
        lay_out_into(expert[at:end], request.expert, rows, found.layers, of_request)
        if weight is not None and request.weight is not None:
            lay_out_into(weight[at:end], request.weight, rows, found.layers, of_request)
        at = end
    layer = np.tile(layers.astype(np.int16), len(steps.tokens))
    n_tokens = np.repeat(steps.tokens, len(layers))
    offset = np.zeros(len(layer) + 1, np.int64)
    np.cumsum(n_tokens, out=offset[1:])
    offset *= shape[1]
    trace = RoutingTrace(
        layer=layer,
        n_tokens=n_tokens,
        offset=offset,
        expert=expert,
        n_experts={int(one): hints.model[int(one)] for one in layers}
        if hints.model
        else infer_n_experts(layers.astype(np.int16), expert),
        n_experts_known=bool(hints.model),
        top_k=shape[1],
        weight=weight,
        phase=np.repeat(steps.phase, len(layers)),
        sequence=np.repeat(steps.sequence, len(layers)),
        step=np.repeat(np.arange(len(steps.tokens), dtype=np.int32), len(layers)),
        format=format,
        name=name,
        notes=(*assumed, *found.notes, *_notes(requests, steps, hints), *notes),
    )
    if hints.model:
        check_ids(trace, name)
    return trace


def _one_shape(requests: Sequence[Request]) -> tuple[int, int]:
    """Layers and experts per token, the same for all requests."""
    first = requests[0]
    for request in requests:
        if request.expert.ndim != 3 or request.expert.dtype.kind not in "iu" or 0 in request.expert.shape[1:]:
            shape = list(request.expert.shape)
            raise BadInput(
                f"{request.where}: routing is {request.expert.dtype} {shape}; expected whole numbers "
                "[tokens, layers, k]"
            )
        for axis, what in ((1, "layers"), (2, "experts per token (mixed top-k)")):
            one, other = first.expert.shape[axis], request.expert.shape[axis]
            if one != other:
                raise BadInput(
                    f"{request.where}: {other} {what}, but {one} in {first.where}; give requests of one model"
                )
        if request.moe_only != first.moe_only:
            raise BadInput(
                f"{first.where} and {request.where}: one has only the routed layers, as vLLM 0.21 writes them, the "
                "other has all; give files of one version"
            )
    return first.expert.shape[1], first.expert.shape[2]


@dataclass(frozen=True, eq=False)
class _Steps:
    """tokens: i32 [steps], tokens of each pass over the model; by_request: the same, an array per request.

    phase: u8 [steps]. sequence: i32 [steps], the request.
    """

    by_request: list[NDArray[np.int32]]
    tokens: NDArray[np.int32]
    phase: NDArray[np.uint8]
    sequence: NDArray[np.int32]

    @classmethod
    def of(cls, requests: Sequence[Request], firsts: Sequence[int], found: RoutedRows, chunk: int) -> _Steps:
        tokens, phase, sequence = [], [], []
        for number, (request, first, rows) in enumerate(zip(requests, firsts, found.rows, strict=True)):
            prompt = int(np.searchsorted(rows, request.prompt - first))
            chunks = np.full(-(-prompt // chunk), chunk, np.int32)
            chunks[prompt // chunk :] = prompt % chunk
            decoded = len(rows) - prompt
            tokens.append(np.concatenate([chunks, np.ones(decoded, np.int32)]))
            phase += [np.full(len(chunks), PHASE_PROMPT, np.uint8), np.full(decoded, PHASE_DECODE, np.uint8)]
            sequence.append(np.full(len(chunks) + decoded, number, np.int32))
        return cls(tokens, np.concatenate(tokens), np.concatenate(phase), np.concatenate(sequence))


def _notes(requests: Sequence[Request], steps: _Steps, hints: Hints) -> list[str]:
    notes = []
    if (steps.phase == PHASE_PROMPT).any():
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
