"""Prompts in micro-batches of another size."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.trace.calls import ranges, run_starts, with_end
from flashmoe_sim.trace.join import join_calls, phases_of
from flashmoe_sim.trace.routing import PHASE_PROMPT, RoutingTrace, offsets


def in_micro_batches(trace: RoutingTrace, size: int) -> RoutingTrace:
    """The trace with the tokens of each prompt in calls of `size` tokens, whatever their recorded calls.

    The prompt's last call may be smaller. A layer with fewer tokens than others is assumed to have computed the last
    ones. Decoding does not change, nor does a trace with unknown phases or a prompt with calls of unknown tokens.
    Raises BadInput for a size below 1.
    """
    if size < 1:
        raise BadInput(f"micro-batches of {size} tokens; expected at least 1")
    if not trace.calls:
        return trace
    single = by_token(trace)
    first = run_starts(single.steps)
    prompt = (phases_of(single) == PHASE_PROMPT)[first] & (np.maximum.reduceat(single.n_tokens, first) <= 1)
    sequence = np.zeros(len(first), np.int32) if single.sequence is None else single.sequence[first]
    begins = run_starts(prompt, sequence)  # of each prompt, and of what lies between two
    place = np.arange(len(first)) - np.repeat(begins, np.diff(with_end(begins, len(first))))
    opens = ~prompt | (place % size == 0)
    if single is trace and opens.all():
        return trace
    steps = np.repeat(np.cumsum(opens) - 1, np.diff(with_end(first, single.calls)))
    return join_calls(single, np.arange(single.calls), steps)


def by_token(trace: RoutingTrace) -> RoutingTrace:
    """The trace with each prompt token as its own step; prompts with calls of unknown tokens do not change."""
    passes = run_starts(trace.steps, np.cumsum(np.diff(trace.layer, prepend=trace.layer[:1]) <= 0))
    number = np.repeat(np.arange(len(passes)), np.diff(with_end(passes, trace.calls)))
    length, tokens = np.diff(trace.offset), trace.n_tokens
    clear = (length == 0) | ((tokens > 0) & (length % np.maximum(tokens, 1) == 0))
    whole = np.logical_and.reduceat(clear & (phases_of(trace) == PHASE_PROMPT), passes)[number]
    pieces = np.where(whole, np.maximum(tokens, 1), 1).astype(np.int64)
    if (pieces == 1).all() and len(passes) == len(run_starts(trace.steps)):
        return trace
    call = np.repeat(np.arange(trace.calls), pieces)
    token = ranges(np.zeros(trace.calls, np.int64), pieces)
    from_end = pieces[call] - token
    order = np.lexsort((call, -from_end, number[call]))
    call, token, from_end = call[order], token[order], from_end[order]
    width = length[call] // pieces[call]
    reference = ranges(trace.offset[call] + token * width, width)
    changes = np.zeros(len(call), np.bool_)
    changes[run_starts(trace.steps[call], np.where(whole[call], number[call], -1), from_end)] = True
    return trace.with_(
        layer=trace.layer[call],
        sequence=_of(trace.sequence, call),
        n_tokens=np.where(whole[call] & (width > 0), 1, tokens[call]).astype(np.int32),
        n_text=None
        if trace.n_text is None
        else np.where(whole[call] & (width > 0), 1, trace.n_text[call]).astype(np.int32),
        offset=offsets(width),
        expert=trace.expert[reference],
        weight=_of(trace.weight, reference),
        phase=phases_of(trace)[call],
        slot=None,
        resident=None,
        step=(np.cumsum(changes) - 1).astype(np.int32),
    )


def _of(values: NDArray[Any] | None, rows: NDArray[np.int64]) -> NDArray[Any] | None:
    return None if values is None else values[rows]
