"""Speculative decoding: several tokens of one sequence verified in one step."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim._jit import jit
from flashmoe_sim.io.errors import Incomplete, OutOfRange, unknown_name
from flashmoe_sim.trace.calls import ranges, run_starts, with_end
from flashmoe_sim.trace.join import join_calls, phases_of
from flashmoe_sim.trace.routing import PHASE_PROMPT, RoutingTrace

MOST_DRAFTED = 64
STAND_INS = {"random": "random steps", "next": "the true tokens"}


def speculate(
    trace: RoutingTrace, *, draft: int, accept: float = 1.0, rejected: str = "random", seed: int = 0
) -> RoutingTrace:
    """The trace as it would be if a draft model proposed `draft` tokens before every decode step.

    A step then has the calls of a token and of the drafted tokens after it; the next step begins after the accepted
    ones. Each is accepted with probability `accept` unless one before it was rejected. The routing of a rejected token
    is not in the trace, so another token stands in for it. It counts in `n_tokens` like any other. Steps of the prompt,
    and steps with a call of several or unknown tokens, do not change; no token is drafted beyond them, or beyond the
    end of a sequence.
    accept: in [0, 1]. The result's `n_text` has the accepted tokens, and the one of the pass itself.
    rejected: what stands in for a rejected token. `random`: a decode step drawn from the whole trace, too unlike its
        neighbours; `next`: the true token at its place, a perfect prefetch of the next step's experts. The misses of a
        real run should lie between the two.
    seed: of the draws. Which tokens are accepted does not depend on `rejected` or its draws.
    Raises BadInput for a trace without calls, for parameters out of range, and if no step can have drafted tokens.
    Source: Leviathan, Kalman and Matias, Fast Inference from Transformers via Speculative Decoding, section 2 and 3.1.
    """
    if not 0 <= draft <= MOST_DRAFTED:
        raise OutOfRange(f"draft {draft} tokens; expected 0 to {MOST_DRAFTED}")
    if not 0 <= accept <= 1:
        raise OutOfRange(f"accept {accept}; expected a probability, 0 to 1")
    if rejected not in STAND_INS:
        raise unknown_name("stand-in for rejected tokens", rejected, STAND_INS)
    if seed < 0:
        raise OutOfRange(f"seed {seed}; expected at least 0")
    if not trace.calls:
        raise Incomplete(f"{trace.name or 'trace'}: no routed calls in it; record or convert the trace again")
    first = run_starts(trace.steps)
    room = _room(trace, first)
    if draft and not (room > 0).any():
        raise Incomplete(f"{trace.name or 'trace'}: no two decode steps of one token in a row; nothing can be drafted")
    draws = np.random.default_rng(seed)
    drawn = draws.random(len(first))
    accepted = np.zeros(len(first), np.int64)
    for number in range(1, draft + 1):
        accepted += drawn < accept**number
    begin, tokens = np.zeros((2, len(first)), np.int64)
    count = _walk(room, accepted, draft, begin, tokens)
    begin, tokens = begin[:count], tokens[:count]
    source = ranges(begin, tokens)
    single = np.flatnonzero(room >= 0)
    wrong = source > np.repeat(begin + accepted[begin], tokens)
    if rejected == "random":
        source[wrong] = draws.choice(single, int(wrong.sum()))
    calls = np.diff(with_end(first, trace.calls))[source]
    steps = np.repeat(np.repeat(np.arange(count), tokens), calls)
    called = ranges(first[source], calls)
    text = np.where(np.repeat(wrong, calls), 0, trace.text[called])
    joined = join_calls(trace.with_(sequence=None), called, steps, text if draft else None)
    verified = tokens[room[begin] >= 0]
    name = f"{trace.name}, drafting {draft}"
    note = f"{len(single):,} decode steps became {len(verified):,}, with {draft} drafted in each"
    if accept < 1:
        name += f", {accept:g} accepted, {rejected} for the rest"
        note += (
            f" and accepted with probability {accept:g} (seed {seed}): {verified.sum():,} tokens computed for "
            f"{len(single):,}, {wrong.sum():,} rejected ones replaced by {STAND_INS[rejected]}"
        )
        if verified.sum() > len(single):
            note += "; tok/s and figures per token are of the text"
    return joined.with_(
        name=name,
        notes=(*trace.notes, note),
        sequence=None if trace.sequence is None else trace.sequence[first[begin]][joined.step],
    )


def _room(trace: RoutingTrace, first: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each step, how many tokens can be drafted in it: the single-token decode steps that follow it; i64 [steps].

    -1 for a step that is not a single-token decode step. first: i64 [steps], the first call of each step.
    """
    single = np.logical_and.reduceat((trace.n_tokens == 1) & (phases_of(trace) != PHASE_PROMPT), first)
    sequence = np.zeros(len(first), np.int32) if trace.sequence is None else trace.sequence[first]
    start = run_starts(single, sequence)
    length = np.diff(with_end(start, len(first)))
    room = np.repeat(start + length, length) - np.arange(len(first)) - 1
    return np.where(single, room, -1)


@jit
def _walk(room: Any, accepted: Any, draft: int, begin: Any, tokens: Any) -> int:
    """Write each new step's first old step and number of old steps, i64 [steps]; return the number of new steps."""
    count = at = 0
    while at < len(room):
        drafted = max(min(draft, room[at]), 0)
        begin[count], tokens[count] = at, drafted + 1
        at += 1 + min(accepted[at], drafted)
        count += 1
    return count
