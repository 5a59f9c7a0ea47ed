"""Cutting a trace to fewer ranks, layers or steps."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import Incomplete, OutOfRange, Unsupported
from flashmoe_sim.io.notes import DROPPED, Note
from flashmoe_sim.trace.check import PER_CALL, PER_REFERENCE
from flashmoe_sim.trace.phases import find_phases
from flashmoe_sim.trace.routing import PER_LAYER, RoutingTrace, offsets

WITHOUT_RANKS = ("grouped-pairs", "served-json", "megatron-jsonl", "sglang-pt")


def cut(
    trace: RoutingTrace,
    *,
    top_k: int | None = None,
    layers: Collection[int] | None = None,
    steps: tuple[int | None, int | None] | None = None,
) -> RoutingTrace:
    """A part of a trace; the cuts are added to its name and notes.

    top_k: keep the first ranks of every token; recorded slots and residency are dropped, since they describe another
        run.
    layers: keep these. steps: keep [begin, end), None for the trace's own end; they are numbered from 0 again. Phases
    inferred from the whole trace are kept as if recorded.
    Raises BadInput if ranks or tokens were not recorded, K exceeds a token's experts, a layer is not in the trace,
    or nothing is left.
    """
    if layers is not None or steps is not None:
        trace = _some_calls(trace, layers=layers, steps=steps)
    return trace if top_k is None else _first_ranks(trace, top_k)


def _some_calls(
    trace: RoutingTrace, *, layers: Collection[int] | None, steps: tuple[int | None, int | None] | None
) -> RoutingTrace:
    kept = np.ones(trace.calls, dtype=np.bool_)
    name, notes = _name(trace), list(trace.notes)
    if layers is not None:
        if missing := sorted(set(layers) - set(trace.layers)):
            raise OutOfRange(
                f"{_name(trace)}: layer {missing[0]} is not in the trace, which has {shown_layers(trace.layers)}"
            )
        kept &= np.isin(trace.layer, list(layers))
        name += f", layers {shown_layers(set(layers))}"
        notes.append(f"cut to layers {shown_layers(set(layers))}")
    if steps is not None:
        begin, end = steps
        kept &= trace.steps >= (0 if begin is None else begin)
        if end is not None:
            kept &= trace.steps < end
        span = f"{'' if begin is None else begin}:{'' if end is None else end}"
        name += f", steps {span}"
        notes.append(f"cut to steps {span}")
        if begin and trace.slot is not None:
            notes.append("the recorded slots begin with a bank that is already filled")
    if not kept.any():
        last = int(trace.steps[-1]) if trace.calls else -1
        raise OutOfRange(f"{_name(trace)}: nothing is left; the trace has steps 0..{last}")
    phase = trace.phase
    if phase is None and (phases := find_phases(trace)) is not None:
        phase = phases.of_calls(trace)
    step = trace.steps[kept]
    trace = trace.with_(phase=phase, step=trace.steps, name=name, notes=tuple(notes), **_of_layers(trace, layers))
    cut_to = _select(trace, calls=kept, references=np.repeat(kept, np.diff(trace.offset)))
    return cut_to.with_(step=step - step.min())


def _first_ranks(trace: RoutingTrace, top_k: int) -> RoutingTrace:
    if top_k < 1:
        raise OutOfRange(f"top-k {top_k}; expected at least 1")
    if trace.format in WITHOUT_RANKS:
        raise Unsupported(
            f"{_name(trace)}: {trace.format} does not record the router-rank order, so its top-k cannot be cut"
        )
    length = np.diff(trace.offset)
    unknown = np.flatnonzero(trace.has_refs & (trace.n_tokens < 1) | (length % np.maximum(trace.n_tokens, 1) != 0))
    if len(unknown):
        raise Incomplete(f"{_name(trace)}: the tokens of call {unknown[0]} are unknown, so its top-k cannot be cut")
    width = length // np.maximum(trace.n_tokens, 1)
    if len(too_narrow := np.flatnonzero(trace.has_refs & (width < top_k))):
        narrow = int(too_narrow[0])
        raise OutOfRange(
            f"{_name(trace)}: top-k {top_k}, but call {narrow} has {width[narrow]} experts per token; give at most that"
        )
    rank = (np.arange(trace.refs) - np.repeat(trace.offset[:-1], length)) % np.repeat(width, length)
    notes = [*trace.notes, f"cut to the first {top_k} ranks of every token"]
    if trace.slot is not None or trace.resident is not None:
        lost = "recorded slots and residency were dropped: they describe the run before the cut"
        notes.append(Note(DROPPED, lost))
    name = f"{_name(trace)}, top-{top_k}"
    trace = trace.with_(slot=None, resident=None, top_k=top_k, name=name, notes=tuple(notes))
    return _select(trace, calls=np.ones(trace.calls, dtype=np.bool_), references=rank < top_k)


def _select(trace: RoutingTrace, *, calls: NDArray[np.bool_], references: NDArray[np.bool_]) -> RoutingTrace:
    """The trace with only these calls (bool [calls]) and these references (bool [references])."""
    length = np.diff(offsets(references)[trace.offset])[calls]
    kept = dict.fromkeys(PER_CALL, calls) | dict.fromkeys(PER_REFERENCE, references)
    values = {name: getattr(trace, name) for name in kept}
    parts = {name: None if values[name] is None else values[name][kept[name]] for name in kept}
    return trace.with_(offset=offsets(length), **parts)


def _of_layers(trace: RoutingTrace, layers: Collection[int] | None) -> dict[str, dict[int, int] | None]:
    """The fields that are keyed by layer, for these layers only."""
    known = {name: getattr(trace, name) for name in PER_LAYER}
    return {
        name: values and {layer: value for layer, value in values.items() if layers is None or layer in layers}
        for name, values in known.items()
    }


def shown_layers(layers: Collection[int]) -> str:
    """Layer numbers as ranges: 0-11,20."""
    runs: list[list[int]] = []
    for layer in sorted(layers):
        if runs and layer == runs[-1][1] + 1:
            runs[-1][1] = layer
        else:
            runs.append([layer, layer])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in runs)


def _name(trace: RoutingTrace) -> str:
    return trace.name or "trace"
