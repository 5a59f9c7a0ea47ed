"""Prompts of another length, made of a trace's own tokens, and in micro-batches of another size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import Incomplete, OutOfRange
from flashmoe_sim.trace.calls import ranges, run_starts, with_end
from flashmoe_sim.trace.join import end_to_end, join_calls, phases_of
from flashmoe_sim.trace.routing import PHASE_DECODE, PHASE_PROMPT, RoutingTrace, offsets

MICRO_BATCH = 512  # prompt tokens that engines like llama.cpp route together by default
MOST_BATCHES = 16  # of a prompt that repeats tokens; by then few of its misses are first uses


@dataclass(frozen=True, eq=False)
class Prompted:
    """A trace that begins with a prompt, followed by decoded steps.

    tokens: of the prompt. distinct: how many of them there are before they are repeated. recorded: how many of the
    distinct come from a recorded prompt; the others are decoded tokens. wanted: how many tokens were requested.
    """

    trace: RoutingTrace
    tokens: int
    distinct: int
    recorded: int
    wanted: int

    @property
    def made(self) -> bool:
        """Whether it differs from a recorded prompt of the requested length."""
        return self.recorded < self.wanted


def with_prompt(trace: RoutingTrace, tokens: int) -> Prompted:
    """The trace with one prompt before its decoded tokens, in micro-batches of 512.

    The prompt has the first recorded prompt tokens, then decoded tokens in order, which are decoded again after it. If
    the trace has fewer tokens than requested, its whole micro-batches are repeated, up to MOST_BATCHES in all; if there
    is no whole one, the prompt has all its tokens once. Calls of unknown tokens are left out of prompts.
    Raises BadInput if no call has a known number of tokens, and for a prompt of less than 1.
    """
    if tokens < 1:
        raise OutOfRange(f"a prompt of {tokens} tokens; expected 1 or more")
    prompt = phases_of(trace) == PHASE_PROMPT
    body = _calls(trace, ~prompt)
    singles = [_single_tokens(_calls(trace, prompt)), _single_tokens(body)]
    steps = [run_starts(one.steps).size for one in singles]
    found = min(tokens, sum(steps))
    if not found:
        raise Incomplete(
            f"{trace.name or 'trace'}: does not record the tokens of its calls, so there is no prompt to time; "
            "give --objective decode, or another trace"
        )
    length = found
    if MICRO_BATCH <= found < tokens:
        found -= found % MICRO_BATCH
        length = max(found, min(tokens, MOST_BATCHES * MICRO_BATCH))
    recorded = min(found, steps[0])
    head = _stacked([_first(one, n) for one, n in zip(singles, (recorded, found - recorded), strict=True)])
    head = _stacked([*[head] * (length // found), _first(head, length % found)])
    head = in_micro_batches(head.with_(phase=np.full(head.calls, PHASE_PROMPT, np.uint8)), MICRO_BATCH)
    body = body.with_(phase=np.full(body.calls, PHASE_DECODE, np.uint8))
    whole = _stacked([head, body])
    if body.sequence is not None and body.calls:
        whole = whole.with_(sequence=np.concatenate([np.full(head.calls, body.sequence[0]), body.sequence]))
    return Prompted(whole, length, found, recorded, tokens)


def _calls(trace: RoutingTrace, kept: NDArray[np.bool_]) -> RoutingTrace:
    return join_calls(trace, np.flatnonzero(kept), trace.steps[kept].astype(np.int64))


def _single_tokens(trace: RoutingTrace) -> RoutingTrace:
    """Each known token as its own step, in one text."""
    if not trace.calls:
        return trace
    every = np.full(trace.calls, PHASE_PROMPT, np.uint8)
    single = in_micro_batches(trace.with_(phase=every, sequence=None, step=trace.steps), 1)
    first = run_starts(single.steps)
    known = np.maximum.reduceat(single.n_tokens, first) == 1
    return _calls(single, np.repeat(known, np.diff(with_end(first, single.calls))))


def _first(trace: RoutingTrace, steps: int) -> RoutingTrace:
    first = with_end(run_starts(trace.steps), trace.calls)
    return _calls(trace, np.arange(trace.calls) < first[steps])


def _stacked(parts: Sequence[RoutingTrace]) -> RoutingTrace:
    """The calls of one part after another, with steps numbered on; only routing is kept."""
    steps, begin = [], 0
    for part in parts:
        number = np.cumsum(np.diff(part.steps, prepend=part.steps[:1]) != 0)
        steps.append(begin + number)
        begin += int(number[-1]) + 1 if part.calls else 0
    calls = end_to_end(parts) | {"weight": None, "sequence": None}
    return parts[0].with_(**calls, step=np.concatenate(steps).astype(np.int32))


def in_micro_batches(trace: RoutingTrace, size: int) -> RoutingTrace:
    """The trace with the tokens of each prompt in calls of `size` tokens, whatever their recorded calls.

    The prompt's last call may be smaller. A layer with fewer tokens than others is assumed to have computed the last
    ones. Decoding does not change, nor does a trace with unknown phases or a prompt with calls of unknown tokens.
    Raises BadInput for a size below 1.
    """
    if size < 1:
        raise OutOfRange(f"micro-batches of {size} tokens; expected at least 1")
    if not trace.calls:
        return trace
    single = by_token(trace)
    first = run_starts(single.steps)
    prompt = (phases_of(single) == PHASE_PROMPT)[first] & (np.maximum.reduceat(single.n_tokens, first) <= 1)
    sequence = np.zeros(len(first), np.int32) if single.sequence is None else single.sequence[first]
    begins = run_starts(prompt, sequence)  # of each prompt, and of each part between two
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
