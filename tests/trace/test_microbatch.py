"""Prompts in micro-batches of another size, by hand and by what must stay."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from flashmoe_sim.io.errors import OutOfRange
from flashmoe_sim.trace.load import load_trace
from flashmoe_sim.trace.made_prompt import in_micro_batches
from flashmoe_sim.trace.routing import RoutingTrace
from tests.residency.builders import Call, trace_of

PROMPT, DECODE = 1, 2
# A prompt of three tokens of top-2, of which the last layer computes the last one only; then a decoded token.
CALLS: list[Call] = [(0, [1, 2, 3, 4, 5, 6], 3), (1, [7, 8], 1), (0, [1, 1], 1), (1, [2, 2], 1)]


def made(calls: list[Call] = CALLS, phase: tuple[int, ...] = (PROMPT, PROMPT, DECODE, DECODE)) -> RoutingTrace:
    return trace_of(calls, 9).with_(phase=np.array(phase, np.uint8))


def calls_of(trace: RoutingTrace) -> list[tuple[int, int, list[int]]]:
    """The step, layer and experts of each call."""
    parts = np.split(trace.expert, trace.offset[1:-1])
    return [(int(s), int(one), part.tolist()) for s, one, part in zip(trace.steps, trace.layer, parts, strict=True)]


def test_a_prompt_is_cut_to_single_tokens_and_the_last_layer_keeps_the_last() -> None:
    single = in_micro_batches(made(), 1)
    assert calls_of(single) == [
        *[(0, 0, [1, 2]), (1, 0, [3, 4]), (2, 0, [5, 6]), (2, 1, [7, 8])],
        *[(3, 0, [1, 1]), (3, 1, [2, 2])],
    ]
    assert single.n_tokens.tolist() == [1] * 6
    assert single.phase.tolist() == [PROMPT] * 4 + [DECODE] * 2


def test_tokens_are_put_together_and_the_last_call_is_smaller() -> None:
    pairs = in_micro_batches(made(), 2)
    assert calls_of(pairs)[:3] == [(0, 0, [1, 2, 3, 4]), (1, 0, [5, 6]), (1, 1, [7, 8])]
    assert pairs.n_tokens.tolist() == [2, 1, 1, 1, 1]
    assert calls_of(in_micro_batches(in_micro_batches(made(), 1), 3)) == calls_of(made())
    assert calls_of(in_micro_batches(made(), 512)) == calls_of(made())


def test_two_prompts_are_not_put_together() -> None:
    trace = made([(0, [1, 2], 1), (0, [3, 4], 1)], (PROMPT, PROMPT)).with_(sequence=np.array([0, 1], np.int32))
    assert in_micro_batches(trace, 8).n_tokens.tolist() == [1, 1]


def test_what_is_not_known_is_left_alone() -> None:
    unknown = made([(0, [1, 2, 3, 4], 0), (0, [5, 6], 1)], (PROMPT, DECODE))
    assert calls_of(in_micro_batches(unknown, 1)) == calls_of(unknown)
    decoded = made(phase=(DECODE,) * 4)
    assert in_micro_batches(decoded, 1) is decoded
    with pytest.raises(OutOfRange, match="expected at least 1"):
        in_micro_batches(made(), 0)


@pytest.mark.parametrize("name", ["python-256", "qwen3-30b-phone"])
@pytest.mark.parametrize("size", [1, 7, 64])
def test_every_reference_stays_in_its_layer(name: str, size: int) -> None:
    trace = load_trace(name)
    other = in_micro_batches(trace, size)
    for mine, theirs in zip(trace.by_layer, other.by_layer, strict=True):
        assert Counter(mine.expert.tolist()) == Counter(theirs.expert.tolist())
    assert other.tokens == trace.tokens
    assert int(other.n_tokens.max()) <= size


def test_a_recorded_prompt_comes_back_as_it_was() -> None:
    trace = load_trace("qwen3-30b-phone")
    back = in_micro_batches(in_micro_batches(trace, 1), int(trace.n_tokens.max()))
    assert np.array_equal(back.expert, trace.expert)
    assert np.array_equal(back.n_tokens, trace.n_tokens)
