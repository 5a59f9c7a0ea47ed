"""A trace with a prompt of a given length, made of its own tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.trace.calls import run_starts, with_end
from flashmoe_sim.trace.join import join_calls, phases_of, text_of
from flashmoe_sim.trace.microbatch import in_micro_batches
from flashmoe_sim.trace.routing import PHASE_DECODE, PHASE_PROMPT, RoutingTrace, offsets

MICRO_BATCH = 512  # prompt tokens that engines like llama.cpp route together by default
MOST_BATCHES = 16  # of a prompt that repeats tokens; by then few of its misses are first uses


@dataclass(frozen=True, eq=False)
class Prompted:
    """A trace that begins with a prompt, followed by decoded steps.

    tokens: of the prompt. distinct: how many of them there are before they are repeated. recorded: how many of the
    distinct come from a recorded prompt; the others are decoded tokens. asked: how many tokens were requested.
    """

    trace: RoutingTrace
    tokens: int
    distinct: int
    recorded: int
    asked: int

    @property
    def made(self) -> bool:
        """Whether it differs from a recorded prompt of the requested length."""
        return self.recorded < self.asked


def with_prompt(trace: RoutingTrace, tokens: int) -> Prompted:
    """The trace with one prompt before its decoded tokens, in micro-batches of 512.

    The prompt has the first recorded prompt tokens, then decoded tokens in order, which are decoded again after it. If
    the trace has fewer tokens than requested, its whole micro-batches are repeated, up to MOST_BATCHES in all; if there
    is no whole one, the prompt has all its tokens once. Calls of unknown tokens are left out of prompts.
    Raises BadInput if no call has a known number of tokens, and for a prompt of less than 1.
    """
    if tokens < 1:
        raise BadInput(f"a prompt of {tokens} tokens; expected 1 or more")
    prompt = phases_of(trace) == PHASE_PROMPT
    body = _calls(trace, ~prompt)
    singles = [_by_token(_calls(trace, prompt)), _by_token(body)]
    steps = [run_starts(one.steps).size for one in singles]
    found = min(tokens, sum(steps))
    if not found:
        raise BadInput(
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


def _by_token(trace: RoutingTrace) -> RoutingTrace:
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
    return parts[0].with_(
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in ("layer", "n_tokens", "expert")},
        n_text=text_of(parts),
        offset=offsets(np.concatenate([np.diff(part.offset) for part in parts])),
        step=np.concatenate(steps).astype(np.int32),
        phase=np.concatenate([phases_of(part) for part in parts]),
        weight=None,
        slot=None,
        resident=None,
        sequence=None,
    )
