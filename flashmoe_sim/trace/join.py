"""Decoding steps together: routed calls of one layer become one call with all their tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import TooLarge
from flashmoe_sim.trace.calls import ranges, run_starts, with_end
from flashmoe_sim.trace.phases import find_phases
from flashmoe_sim.trace.routing import PHASE_PROMPT, PHASE_UNKNOWN, RoutingTrace, offsets

LAST_STEP = np.iinfo(np.int32).max


def join_calls(
    trace: RoutingTrace, calls: NDArray[np.int64], steps: NDArray[np.int64], text: NDArray[np.int32] | None = None
) -> RoutingTrace:
    """The trace with each of `calls` at its new step, and with the calls of one layer and step joined into one.

    If a step has several passes over the layers, they stay apart: first passes are joined with first passes. Tokens of
    a joined call are in the order of `calls`; their number is unknown (0) if it is unknown for one of the calls, or if
    tokens differ in width. Its phase is unknown if its tokens differ in phase; if no phase is known, all are unknown.
    Sequences are dropped if two of them meet in a call, recorded slots and residency always: they describe the recorded
    run.
    calls: i64 [n], numbers of calls, in order within each step; repeats are decoded again. steps: i64 [n], from 0.
    text: i32 [n], the text's share of each call's tokens; default: as recorded.
    Raises BadInput for a step that does not fit an i32.
    """
    if steps.max(initial=0) > LAST_STEP:
        raise TooLarge(f"{trace.name or 'trace'}: has {steps.max() + 1:,} steps; expected at most {LAST_STEP + 1:,}")
    layer, step_pass = trace.layer[calls], _passes(trace)[calls]
    if text is None and trace.n_text is not None:
        text = trace.n_text[calls]
    order = np.lexsort((layer, step_pass, steps))
    first = run_starts(steps[order], step_pass[order], layer[order])
    calls = calls[order]
    length, tokens = np.diff(trace.offset)[calls], trace.n_tokens[calls]
    begin = offsets(length)
    reference = ranges(trace.offset[calls], length)
    width = np.where((tokens > 0) & (length % np.maximum(tokens, 1) == 0), length // np.maximum(tokens, 1), 0)
    narrowest = np.minimum.reduceat(np.where(length > 0, width, length.max(initial=1)), first)
    alike = (narrowest > 0) & (narrowest == np.maximum.reduceat(width, first))
    alone = np.diff(with_end(first, len(calls))) == 1
    phase = phases_of(trace)[calls]
    one_phase = np.minimum.reduceat(phase, first) == np.maximum.reduceat(phase, first)
    sequence = None if trace.sequence is None else trace.sequence[calls]
    if sequence is not None:
        meet = (np.minimum.reduceat(sequence, first) != np.maximum.reduceat(sequence, first)).any()
        sequence = None if meet else sequence[first]
    return trace.with_(
        layer=trace.layer[calls[first]],
        n_tokens=np.where(alike | alone, np.add.reduceat(tokens, first), 0).astype(np.int32),
        n_text=None
        if text is None
        else np.where(alike | alone, np.add.reduceat(text[order], first), 0).astype(np.int32),
        offset=begin[with_end(first, len(calls))],
        expert=trace.expert[reference],
        weight=None if trace.weight is None else trace.weight[reference],
        slot=None,
        resident=None,
        phase=np.where(one_phase, phase[first], PHASE_UNKNOWN).astype(np.uint8),
        sequence=sequence,
        step=steps[order][first].astype(np.int32),
    )


def end_to_end(parts: Sequence[RoutingTrace]) -> dict[str, NDArray[Any] | None]:
    """The fields of the calls of all parts, one part after another, without steps and sequences.

    Phases are as recorded or inferred for each part.
    """

    def all_of(name: str) -> NDArray[Any] | None:
        values = [getattr(part, name) for part in parts]
        return None if any(value is None for value in values) else np.concatenate(values)

    return {
        **{name: all_of(name) for name in ("layer", "n_tokens", "expert", "weight")},
        "n_text": None if all(part.n_text is None for part in parts) else all_of("text"),
        "offset": offsets(np.concatenate([np.diff(part.offset) for part in parts])),
        "slot": None,
        "resident": None,
        "phase": np.concatenate([phases_of(part) for part in parts]),
    }


def phases_of(trace: RoutingTrace) -> NDArray[np.uint8]:
    """The phase of each call, u8 [calls], recorded or inferred; PHASE_UNKNOWN if neither."""
    if trace.phase is not None:
        return trace.phase
    phases = find_phases(trace)
    return np.full(trace.calls, PHASE_UNKNOWN, np.uint8) if phases is None else phases.of_calls(trace)


def drafted_of(trace: RoutingTrace, phase: NDArray[np.uint8]) -> NDArray[np.int32]:
    """Drafted tokens of each call, i32 [calls]: all but the first of a decode step, if the trace has drafts."""
    if trace.n_text is None:
        return np.zeros(trace.calls, np.int32)
    drafted: NDArray[np.int32] = np.where(phase == PHASE_PROMPT, 0, np.maximum(trace.n_tokens - 1, 0)).astype(np.int32)
    return drafted


def _passes(trace: RoutingTrace) -> NDArray[np.int64]:
    """The pass of each call within its step, i64 [calls]; a pass begins when the layer number does not increase."""
    first = run_starts(trace.steps)
    begins = np.zeros(trace.calls, np.int64)
    begins[1:] = trace.layer[1:] <= trace.layer[:-1]
    passes = np.cumsum(begins)
    return passes - np.repeat(passes[first], np.diff(with_end(first, trace.calls)))
