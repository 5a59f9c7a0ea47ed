"""The gate: checks that every trace must pass before a compiled kernel uses its numbers.

Kernels do not test bounds, so an expert number that its layer does not have would be written outside an array. Traces
from readers, above all the store, and traces made by hand all pass through here.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import Malformed, shown
from flashmoe_sim.trace.calls import ID_MAX
from flashmoe_sim.trace.routing import PHASE_DECODE, RoutingTrace, blocks

MOST = (1 << 31) - 1
MOST_BYTES = 1 << 50
MOST_EXPERTS = 1 << 22  # of all layers; a replay keeps some numbers for each, however short the trace
MOST_NAME = 1 << 16  # a merged trace names its parts
MOST_NOTE = 1 << 20
MOST_CHANCE = 0.05
LEAST_TOKENS, LEAST_USES = 8, 32  # from which chance does not explain that an expert is always used
ASK = "do your ids begin at 1? `sim trace import --columns ... --first-id 1` reads them so"


class Bounds(NamedTuple):
    """The dtype of a column, and its least and largest whole number; a float may be any finite number."""

    dtype: type[np.generic]
    low: int = 0
    high: int = MOST


PER_CALL = {
    "layer": Bounds(np.int16, 0, ID_MAX),
    "n_tokens": Bounds(np.int32),
    "phase": Bounds(np.uint8, 0, PHASE_DECODE),
    "sequence": Bounds(np.int32),
    "step": Bounds(np.int32, 0, MOST - 1),  # the number of steps is one higher
    "n_text": Bounds(np.int32),
}
PER_REFERENCE = {
    "expert": Bounds(np.int16, 0, ID_MAX),
    "weight": Bounds(np.float32),
    "slot": Bounds(np.int16, -1, ID_MAX),
    "resident": Bounds(np.uint8, 0, 1),
}
REQUIRED = ("layer", "n_tokens", "expert")
BY_LAYER = {"n_experts": Bounds(np.int64, 1, ID_MAX + 1), "expert_bytes": Bounds(np.int64, 1, MOST_BYTES),
            "dense_bytes": Bounds(np.int64, 0, MOST_BYTES)}  # fmt: skip


def check_trace(trace: RoutingTrace, *, where: str) -> None:
    """Raise BadInput if an array or a number of a trace is not as RoutingTrace defines it, or out of the trace's
    bounds.

    where: the file, or the trace's name if it has none.
    """
    try:
        _check_arrays(trace)
        _check_rest(trace)
        _check_experts(trace)
        _check_top_k(trace)
    except ValueError as error:
        raise Malformed(f"{where}: {error}; record or convert the trace again") from None


def largest_experts(trace: RoutingTrace) -> NDArray[np.int64]:
    """The largest expert number of each layer, i64 [last layer + 1]; -1 for a layer without references."""
    largest = np.full(max(trace.layers, default=-1) + 1, -1, np.int64)
    for block in blocks(trace.calls):
        offset, layer = trace.offset[block.start : block.stop + 1], trace.layer[block]
        filled = np.flatnonzero(offset[1:] > offset[:-1])
        if len(filled):
            expert = trace.expert[offset[0] : offset[-1]]
            of_call = np.maximum.reduceat(expert, offset[filled] - offset[0])
            np.maximum.at(largest, layer[filled], of_call.astype(np.int64))  # of one type, it is twenty times as fast
    return largest


def _check_arrays(trace: RoutingTrace) -> None:
    _check_kind("offset", trace.offset, np.int64, length=len(trace.layer) + 1)
    for table, length in ((PER_CALL, len(trace.layer)), (PER_REFERENCE, len(trace.expert))):
        for name, bounds in table.items():
            values = getattr(trace, name)
            if values is None and name not in REQUIRED:
                continue
            _check_kind(name, values, bounds.dtype, length=length)
            if length:
                _check_range(name, values, bounds)
    offset = trace.offset
    if offset[0] != 0 or offset[-1] != len(trace.expert):
        raise ValueError(f"offset goes from {offset[0]} to {offset[-1]}; expected 0 to {len(trace.expert)} references")
    for block in blocks(trace.calls - 1):
        if trace.step is not None and (back := trace.step[1:][block] < trace.step[:-1][block]).any():
            at = block.start + int(back.argmax())
            raise ValueError(f"step goes back from {trace.step[at]} to {trace.step[at + 1]} at call {at + 1}")
    for block in blocks(trace.calls):
        if trace.n_text is not None and (more := trace.n_text[block] > trace.n_tokens[block]).any():
            at = block.start + int(more.argmax())
            raise ValueError(f"n_text {at} is {trace.n_text[at]}; the call has {trace.n_tokens[at]} tokens")
        if (back := offset[1:][block] < offset[block]).any():
            at = block.start + int(back.argmax())
            raise ValueError(f"offset goes back at call {at}; the references of a call follow those before it")


def _check_kind(name: str, values: Any, dtype: type[np.generic], *, length: int) -> None:
    if not isinstance(values, np.ndarray) or values.dtype != dtype or values.ndim != 1:
        found = f"{values.dtype} {list(values.shape)}" if isinstance(values, np.ndarray) else type(values).__name__
        raise ValueError(f"{name} is {found}; expected an array of {np.dtype(dtype)}")
    if len(values) != length:
        raise ValueError(f"{name} has {len(values)} entries; expected {length}")


def _check_range(name: str, values: NDArray[Any], bounds: Bounds) -> None:
    if values.dtype.kind == "i" and bounds.low == 0:  # as unsigned, a negative number is large: one test, not two
        least, most = 0, values.view(values.dtype.str.replace("i", "u")).max()
    else:
        least, most = values.min(), values.max()
    if bounds.dtype is np.float32:
        if not (np.isfinite(least) and np.isfinite(most)):  # both are NaN if any value is
            at = int(np.flatnonzero(~np.isfinite(values))[0])
            raise ValueError(f"{name} {at} is {values[at]}; expected a finite number")
    elif least < bounds.low or most > bounds.high:
        at = int(np.flatnonzero((values < bounds.low) | (values > bounds.high))[0])
        raise ValueError(f"{name} {at} is {values[at]}; expected {bounds.low} to {bounds.high}")


def _check_rest(trace: RoutingTrace) -> None:
    """Check everything but the arrays: numbers by layer, top_k, names and notes."""
    for name, bounds in BY_LAYER.items():
        by_layer = getattr(trace, name)
        if by_layer is None and name != "n_experts":
            continue
        if not isinstance(by_layer, Mapping):
            raise ValueError(f"{name} is {shown(by_layer, 40)}; expected a number for each layer")
        for layer, value in by_layer.items():
            if not _whole(layer, 0, ID_MAX):
                raise ValueError(f"{name} has layer {shown(layer, 40)}; expected a whole number 0 to {ID_MAX}")
            if not _whole(value, bounds.low, bounds.high):
                raise ValueError(
                    f"{name} of layer {layer} is {shown(value, 40)}; expected a whole number "
                    f"{bounds.low} to {bounds.high}"
                )
        if missing := set(trace.layers) - set(by_layer):
            raise ValueError(f"{name} lacks layer {min(missing)}, which is routed")
    if (experts := sum(trace.n_experts[layer] for layer in trace.layers)) > MOST_EXPERTS:
        raise ValueError(
            f"its {len(trace.layers):,} layers have {experts:,} experts together; expected at most {MOST_EXPERTS:,}"
        )
    if not isinstance(trace.n_experts_known, bool):
        raise ValueError(f"n_experts_known is {shown(trace.n_experts_known, 40)}; expected true or false")
    if not _whole(trace.top_k, 0, ID_MAX + 1):
        raise ValueError(f"top_k is {shown(trace.top_k, 40)}; expected a whole number 0 to {ID_MAX + 1}")
    for name in ("format", "name"):
        _check_text(name, getattr(trace, name), most=MOST_NAME)
    if not isinstance(trace.notes, tuple):
        raise ValueError(f"notes are {shown(trace.notes, 40)}; expected a tuple of texts")
    for note in trace.notes:
        _check_text("a note", note, most=MOST_NOTE)


def _check_text(name: str, text: Any, *, most: int) -> None:
    if not isinstance(text, str):
        raise ValueError(f"{name} is {shown(text, 40)}; expected a text")
    if len(text) > most:
        raise ValueError(f"{name} has {len(text):,} characters; expected at most {most:,}")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError(f"{name} is {shown(text, 40)}, which has half a character (a lone surrogate)")


def _check_experts(trace: RoutingTrace) -> None:
    if not trace.refs:
        return
    if int(trace.expert.max()) < min(trace.n_experts[layer] for layer in trace.layers):
        return
    largest = largest_experts(trace)
    for layer in trace.layers:
        if largest[layer] >= trace.n_experts[layer]:
            raise ValueError(
                f"layer {layer} asks for expert {largest[layer]}; it has {trace.n_experts[layer]}, numbered from 0"
                + ask_first_id(trace, refused=int(largest[layer]), experts=trace.n_experts[layer])
            )


def _check_top_k(trace: RoutingTrace) -> None:
    """Check that calls with known tokens use at most top_k experts per token; fewer are left to `lint`."""
    if not trace.top_k:
        return
    for block in blocks(trace.calls):
        tokens, length = trace.n_tokens[block].astype(np.int64), trace.offset[1:][block] - trace.offset[block]
        differs = (length > tokens * trace.top_k) & (tokens > 0)
        if not differs.any():
            continue
        differs[differs] = length[differs] % tokens[differs] == 0
        if differs.any():
            at = int(differs.argmax())
            raise ValueError(
                f"top_k is {trace.top_k}, but call {block.start + at} has {length[at]} references of "
                f"{tokens[at]} tokens"
            )


def _whole(value: Any, low: int, high: int) -> bool:
    return not isinstance(value, bool) and isinstance(value, Integral) and low <= int(value) <= high


def begins_at_1(trace: RoutingTrace) -> bool:
    """Whether no layer uses expert 0, although its layers use nearly all others.

    If any of the experts that a layer leaves unused were as likely to be expert 0, the chance of that is at most
    MOST_CHANCE.
    """
    if not trace.refs or int(trace.expert.min()) != 1:
        return False
    experts, layers = int(trace.expert.max()) + 1, np.array(trace.layers)
    row = np.repeat(np.searchsorted(layers, trace.layer), np.diff(trace.offset))
    used = np.zeros((len(layers), experts), np.bool_)
    used[row, trace.expert] = True
    return float(np.prod(1 - used.sum(axis=1) / experts)) <= MOST_CHANCE


def always_used(trace: RoutingTrace) -> int | None:
    """The expert that every token of every layer uses, if there is one beside others: most likely a shared one."""
    few = trace.tokens < LEAST_TOKENS or trace.tokens * len(trace.layers) < LEAST_USES
    if few or trace.refs <= int(trace.n_tokens.sum()):
        return None
    _, first = np.unique(trace.layer, return_index=True)
    in_first = [set(trace.expert[trace.offset[call] : trace.offset[call + 1]].tolist()) for call in first.tolist()]
    tokens = np.append(0, np.cumsum(trace.n_tokens, dtype=np.int64))
    for expert in sorted(set.intersection(*in_first)):
        uses = np.append(0, np.cumsum(trace.expert == expert, dtype=np.int64))
        if (uses[trace.offset] == tokens).all():
            return int(expert)
    return None


def ask_shared(expert: int) -> str:
    """What to ask about such an expert."""
    return (
        f"every token of every layer uses expert {expert}: is it a shared one? `sim trace import --shared {expert}` "
        "leaves it out"
    )


def ask_first_id(trace: RoutingTrace, *, refused: int, experts: int) -> str:
    """What to add to the refusal of an id that a layer with `experts` experts does not have."""
    return f"; {ASK}" if refused == experts and int(trace.expert.min()) == 1 else ""
