"""Prompts made of a trace's own tokens."""

from __future__ import annotations

import numpy as np
import pytest

from flashmoe_sim.io.errors import Incomplete, OutOfRange
from flashmoe_sim.trace import made_prompt as module
from flashmoe_sim.trace.load import load_trace
from flashmoe_sim.trace.made_prompt import with_prompt
from flashmoe_sim.trace.routing import PHASE_DECODE, PHASE_PROMPT, RoutingTrace
from tests.residency.builders import Call, trace_of

# One layer, two experts a token: a prompt of 3 tokens in one call, then 4 decoded ones.
CALLS: list[Call] = [(0, [0, 1, 2, 3, 4, 5], 3), (0, [6, 7], 1), (0, [8, 9], 1), (0, [10, 11], 1), (0, [12, 13], 1)]


def recorded() -> RoutingTrace:
    phases = [PHASE_PROMPT, *[PHASE_DECODE] * 4]
    return trace_of(CALLS, 16).with_(top_k=2, phase=np.array(phases, np.uint8))


def calls(trace: RoutingTrace, phase: int) -> list[list[int]]:
    assert trace.phase is not None
    pieces = np.split(trace.expert, trace.offset[1:-1])
    return [pieces[place].tolist() for place in np.flatnonzero(trace.phase == phase)]


def test_a_shorter_prompt_is_the_beginning_of_the_recorded_one() -> None:
    made = with_prompt(recorded(), 2)
    assert (made.tokens, made.recorded, made.made) == (2, 2, False)
    assert calls(made.trace, PHASE_PROMPT) == [[0, 1, 2, 3]]
    assert calls(made.trace, PHASE_DECODE) == [[6, 7], [8, 9], [10, 11], [12, 13]]
    assert made.trace.steps.tolist() == [0, 1, 2, 3, 4]


def test_a_longer_prompt_goes_on_with_decoded_tokens_which_are_decoded_again() -> None:
    made = with_prompt(recorded(), 5)
    assert (made.tokens, made.recorded, made.made) == (5, 3, True)
    assert calls(made.trace, PHASE_PROMPT) == [[*range(10)]]
    assert calls(made.trace, PHASE_DECODE) == [[6, 7], [8, 9], [10, 11], [12, 13]]


def test_a_trace_without_phases_is_decoded() -> None:
    of_decode = trace_of(CALLS[1:], 16).with_(top_k=2)
    made = with_prompt(of_decode, 3)
    assert (made.tokens, made.recorded) == (3, 0)
    assert calls(made.trace, PHASE_PROMPT) == [[6, 7, 8, 9, 10, 11]]
    assert len(calls(made.trace, PHASE_DECODE)) == 4


def test_more_than_the_trace_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """All tokens, or whole micro-batches of them, repeated."""
    made = with_prompt(recorded(), 100)
    assert (made.tokens, made.distinct, made.recorded, made.made) == (7, 7, 3, True)
    monkeypatch.setattr(module, "MICRO_BATCH", 2)
    monkeypatch.setattr(module, "MOST_BATCHES", 5)
    whole = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    made = with_prompt(recorded(), 9)
    assert (made.tokens, made.distinct, made.recorded) == (9, 6, 3)
    assert calls(made.trace, PHASE_PROMPT) == [*whole, whole[0], [4, 5]]
    made = with_prompt(recorded(), 100)
    assert (made.tokens, made.distinct, made.wanted) == (10, 6, 100)
    assert calls(made.trace, PHASE_PROMPT) == [*whole, *whole[:2]]
    assert calls(made.trace, PHASE_DECODE) == [[6, 7], [8, 9], [10, 11], [12, 13]]
    assert with_prompt(recorded(), 7).tokens == 7


def test_calls_of_unknown_tokens_are_left_out() -> None:
    unknown = recorded().with_(n_tokens=np.array([0, 1, 1, 1, 1], np.int32))
    made = with_prompt(unknown, 2)
    assert (made.tokens, made.recorded) == (2, 0)
    assert calls(made.trace, PHASE_PROMPT) == [[6, 7, 8, 9]]
    with pytest.raises(Incomplete, match="does not record the tokens of its calls"):
        with_prompt(recorded().with_(n_tokens=np.zeros(5, np.int32)), 2)


def test_no_prompt_is_refused() -> None:
    with pytest.raises(OutOfRange, match="a prompt of 0 tokens"):
        with_prompt(recorded(), 0)


def test_the_text_of_the_answer_is_that_of_the_prompt() -> None:
    made = with_prompt(recorded().with_(sequence=np.array([3, 3, 3, 4, 4], np.int32)), 5)
    assert made.trace.sequence.tolist() == [3, 3, 3, 4, 4]


@pytest.mark.parametrize("name", ["qwen3-30b-phone", "gpt-oss-120b", "python-256"])
def test_decoding_stays_as_it_is(name: str) -> None:
    trace = load_trace(name)
    made = with_prompt(trace, 64).trace
    assert made.phase is not None
    decoded = np.repeat(made.phase == PHASE_DECODE, np.diff(made.offset))
    kept = made.expert[decoded]
    assert np.array_equal(kept, trace.expert[len(trace.expert) - len(kept) :])
    assert made.layers == trace.layers
