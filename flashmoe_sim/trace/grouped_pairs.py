"""Grouped pair JSON: one document with the order in which an expert cache was accessed.

`{"trace": [[layer, expert], ...], "entry_bytes": B, "num_groups": layers, "experts_per_group": experts}`. A layer call
is the sorted set of its distinct experts, so the router-rank order is lost; a prompt is one call per layer with the
union of all its tokens.

Source: sparsify (`experiments/qwen3_trace.json`), which accesses every entry once per projection: three times in a row.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import Malformed
from flashmoe_sim.trace.calls import ID_MAX, pair_array, ranges, with_end
from flashmoe_sim.trace.lines import trace_name
from flashmoe_sim.trace.requests import DEFAULTS, ReadOptions
from flashmoe_sim.trace.routing import PHASE_DECODE, PHASE_PROMPT, RoutingTrace, offsets
from flashmoe_sim.trace.source import read_json

MAX_DOCUMENT_BYTES = 256 << 20  # a parsed pair takes ten times its text
REPEATS = 3


def read(path: Path, options: ReadOptions = DEFAULTS) -> RoutingTrace:
    """Read a trace: repeated accesses are collapsed, passes of the model become steps, prompts are told from decoding.

    A pass is a prompt when any of its calls has more experts than the most common call. lenient changes nothing: one
    document has no lines to skip.
    Raises BadInput for a document that is cut short, and for fields that are missing or out of range.
    """
    document = _document(path, options)
    layers = _whole(path, document, "num_groups", most=ID_MAX + 1)
    experts = _whole(path, document, "experts_per_group", most=ID_MAX + 1)
    entry_bytes = _whole(path, document, "entry_bytes", most=1 << 50)
    try:
        pairs = pair_array(document["trace"])
    except ValueError as error:
        raise Malformed(f"{path}: trace: {error}") from None
    layer, expert = np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])
    outside = np.flatnonzero((layer >= layers) | (expert >= experts))
    if len(outside):
        at = int(outside[0])
        raise Malformed(
            f"{path}: trace: pair {at} is [{layer[at]}, {expert[at]}], but the file says {layers} layers "
            f"(num_groups) of {experts} experts (experts_per_group); record it again, or correct them"
        )

    begins = np.append(True, (layer[1:] != layer[:-1]) | (expert[1:] <= expert[:-1]))
    offset, expert, collapsed = _collapse(with_end(np.flatnonzero(begins), len(layer)), layer=layer, expert=expert)
    call_layer, length = layer[begins][:: REPEATS if collapsed else 1], np.diff(offset)
    step = _passes(call_layer)
    common = int(np.bincount(length).argmax())
    prompt = np.zeros(int(step[-1]) + 1, dtype=np.bool_)
    prompt[step[length > common]] = True
    decoded = ~prompt[step]
    return RoutingTrace(
        layer=call_layer,
        n_tokens=np.where(decoded & (length == common), 1, 0).astype(np.int32),
        offset=offset,
        expert=expert,
        n_experts=dict.fromkeys(range(layers), experts),
        n_experts_known=True,
        top_k=common,
        phase=np.where(decoded, PHASE_DECODE, PHASE_PROMPT).astype(np.uint8),
        step=step,
        expert_bytes=dict.fromkeys(range(layers), entry_bytes),
        format="grouped-pairs",
        name=trace_name(path),
        notes=_notes(collapsed=collapsed, prompts=int(prompt.sum())),
    )


def _document(path: Path, options: ReadOptions) -> dict[str, Any]:
    document = read_json(path, progress=options.progress, most_bytes=MAX_DOCUMENT_BYTES)
    if not isinstance(document, dict) or "trace" not in document:
        raise Malformed(f'{path}: no "trace" in the document; expected {{"trace": [[layer, expert], ...], ...}}')
    return document


def _whole(path: Path, document: dict[str, Any], key: str, *, most: int) -> int:
    value: Any = document.get(key)
    whole = type(value) is int or (isinstance(value, float) and value.is_integer())
    if not whole or not 0 < value <= most:
        found = "missing" if key not in document else repr(value)
        raise Malformed(f"{path}: {key} is {found}; expected a whole number 1..{most}")
    return int(value)


def _collapse(
    offset: NDArray[np.int64], *, layer: NDArray[np.int16], expert: NDArray[np.int16]
) -> tuple[NDArray[np.int64], NDArray[np.int16], bool]:
    """Keep every third call if all calls come in equal threes; otherwise change nothing."""
    length = np.diff(offset)
    each = length[::REPEATS]
    if len(length) % REPEATS or (length != np.repeat(each, REPEATS)).any():
        return offset, expert, False
    first = ranges(offset[:-1:REPEATS], each)
    for repeat in range(1, REPEATS):
        again = first + repeat * np.repeat(each, each)
        if (expert[again] != expert[first]).any() or (layer[again] != layer[first]).any():
            return offset, expert, False
    return offsets(each), expert[first], True


def _passes(layer: NDArray[np.int16]) -> NDArray[np.int32]:
    """The pass of each call, i32: a new one begins when a layer recurs. Layers need not be in numeric order."""
    step = np.zeros(len(layer), dtype=np.int32)
    seen: set[int] = set()
    number = 0
    for call, one in enumerate(layer.tolist()):
        if one in seen:
            number += 1
            seen.clear()
        seen.add(one)
        step[call] = number
    return step


def _notes(*, collapsed: bool, prompts: int) -> tuple[str, ...]:
    notes = ["experts are sorted within a call: the router-rank order was not recorded"]
    if collapsed:
        notes.append(f"every call was recorded {REPEATS} times in a row (once per projection): kept once")
    else:
        notes.append(f"calls do not come in equal runs of {REPEATS}: kept as they are")
    if prompts:
        plural = "pass is a prompt" if prompts == 1 else "passes are prompts"
        notes.append(f"{prompts} {plural} recorded as unions: their tokens are unknown and not counted")
    return tuple(notes)
