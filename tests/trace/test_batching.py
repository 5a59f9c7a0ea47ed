from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.trace.batching import batched
from flashmoe_sim.trace.merge import concat, union
from flashmoe_sim.trace.routing import RoutingTrace
from tests.trace import naive_what_if as naive
from tests.trace.strategies import model_traces, trace_of
from tests.trace.test_merge import by_layer, listed

LITTLE = settings(max_examples=60)


def request(name: str, first: int, prompt: int, decoded: int) -> RoutingTrace:
    """One layer, top-1: expert `first` for the first token, then the next ones; the prompt in one call."""
    experts = list(range(first, first + prompt + decoded))
    calls = [(0, experts[:prompt]), *((0, [expert]) for expert in experts[prompt:])]
    phase = np.array([1] + [2] * decoded, np.uint8)
    return trace_of(*calls, n_tokens=[prompt] + [1] * decoded, phase=phase, top_k=1, name=name)


A, B, C = request("a", 0, 3, 1), request("b", 10, 2, 3), request("c", 20, 5, 1)


def experts(trace: RoutingTrace) -> list[list[int]]:
    return [one for _, _, one, _ in listed(trace)]


def test_two_seats_by_hand() -> None:
    """C takes the seat of A, which ends first."""
    made = batched([A, B, C], concurrency=2)
    assert listed(made) == [
        (0, 0, [0, 1, 2, 10, 11], 5),
        (1, 0, [3, 12], 2),
        (2, 0, [13, 20, 21, 22, 23, 24], 6),
        (3, 0, [14, 25], 2),
    ]
    assert made.phase.tolist() == [1, 2, 0, 2]
    assert made.sequence is None
    assert made.name == "continuous batching by 2 of a, b, c"
    assert made.notes == (
        "continuous batching by 2 of a, b, c: 3 requests, first come, first served; all wait at the start; "
        "prompts as recorded",
    )


def test_chunks_by_hand() -> None:
    """Two prompt tokens a step: B waits in its seat for A's, and takes what the last chunk of A leaves."""
    made = batched([A, B, C], concurrency=2, prefill_chunk=2)
    assert experts(made) == [[0, 1], [2, 10], [3, 11], [12, 20, 21], [13, 22, 23], [14, 24], [25]]
    assert made.n_tokens.tolist() == [2, 2, 2, 3, 3, 2, 1]
    assert made.phase.tolist() == [1, 1, 0, 0, 0, 0, 2]
    assert made.notes[-1].endswith("; all wait at the start; at most 2 prompt tokens a step")
    whole = batched([A, B, C], concurrency=1, prefill_chunk=10**20)
    assert experts(whole) == experts(concat([A, B, C]))
    assert whole.sequence.tolist() == [0, 0, 1, 1, 1, 1, 2, 2]


def test_arrivals_by_hand() -> None:
    """At 10 ms a step C comes first, A 11 ms later, so in the second step after; B when both have ended."""
    made = batched([A, B, C], concurrency=2, arrivals_s=[5.011, 5.1, 5.0], step_s=0.01)
    assert experts(made) == [[20, 21, 22, 23, 24], [25], [0, 1, 2], [3], [10, 11], [12], [13], [14]]
    assert made.steps.tolist() == list(range(8))
    assert made.notes[-1].endswith("; arrivals as given, at 10 ms a step; prompts as recorded")
    together = batched([A, B, C], concurrency=3, arrivals_s=[0.01, 0.01, 0.0], step_s=0.01)
    assert experts(together)[1] == [25, 0, 1, 2, 10, 11]


def test_the_sequences_of_a_trace_are_its_requests() -> None:
    """They are admitted in the order of their first calls, whatever their numbers; those in turns are untangled."""
    calls = [(0, [5]), (0, [1]), (0, [6]), (0, [2]), (0, [7])]
    turns = trace_of(*calls, sequence=np.array([9, 4, 9, 4, 9], np.int32), top_k=1, name="turns")
    assert experts(batched([turns], concurrency=1)) == [[5], [6], [7], [1], [2]]
    assert experts(batched([turns, A], concurrency=2)) == [[5, 1], [6, 2], [7, 0, 1, 2], [3]]
    assert experts(batched([turns], concurrency=2, arrivals_s=[1, 0], step_s=1)) == [[1], [2, 5], [6], [7]]


def test_prompts_that_cannot_be_cut_stay() -> None:
    unknown = A.with_(n_tokens=np.array([0, 1], np.int32))
    made = batched([unknown, B], concurrency=2, prefill_chunk=1)
    assert experts(made) == [[0, 1, 2, 10], [3, 11], [12], [13], [14]]
    decoded = B.with_(phase=np.full(4, 2, np.uint8))
    assert (
        batched([decoded, decoded], concurrency=1, prefill_chunk=1)
        .notes[-1]
        .endswith("; no prompt is known in them that could be cut into chunks")
    )


@given(model_traces(), st.integers(1, 5), st.integers(0, 6), st.data())
@LITTLE
def test_it_is_the_plain_twin(parts: list[RoutingTrace], concurrency: int, chunk: int, data: st.DataObject) -> None:
    requests = sum(1 if part.sequence is None else len(set(part.sequence.tolist())) for part in parts)
    came = data.draw(st.none() | st.lists(st.integers(0, 20), min_size=requests, max_size=requests))
    arrivals_s = None if came is None else [7 + 0.5 * one for one in came]
    made = batched(parts, concurrency=concurrency, prefill_chunk=chunk or None, arrivals_s=arrivals_s, step_s=0.5)
    since = None if came is None else [one - min(came) for one in came]
    assert naive.equal(made, naive.batched(parts, concurrency, chunk, since))
    assert by_layer(made) == by_layer(*parts)


@given(model_traces())
@LITTLE
def test_one_seat_is_one_after_another_and_a_seat_for_each_is_a_union(parts: list[RoutingTrace]) -> None:
    whole = [part.with_(sequence=None, step=dense(part)) for part in parts]
    assert routing(batched(whole, concurrency=1)) == routing(concat(whole))
    assert routing(batched(whole, concurrency=len(whole))) == routing(union(whole))
    assert routing(batched(whole, concurrency=99)) == routing(union(whole))


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=6), st.data())
@LITTLE
def test_every_request_keeps_its_tokens_in_order(sizes: list[tuple[int, int]], data: st.DataObject) -> None:
    """No step has more requests than seats, nor more prompt tokens than a chunk; no seat is empty while one waits."""
    parts = [request(f"r{number}", 100 * number, *size) for number, size in enumerate(sizes)]
    concurrency, chunk = data.draw(st.integers(1, 7)), data.draw(st.none() | st.integers(1, 12))
    made = experts(batched(parts, concurrency=concurrency, prefill_chunk=chunk))
    flat = [expert for step in made for expert in step]
    for number, part in enumerate(parts):
        assert [expert for expert in flat if expert // 100 == number] == part.expert.tolist()
    steps = [[n for n, step in enumerate(made) if any(e // 100 == r for e in step)] for r in range(len(parts))]
    assert [one[0] for one in steps] == sorted(one[0] for one in steps)
    for number, step in enumerate(made):
        running = sum(one[0] <= number <= one[-1] for one in steps)
        assert running <= concurrency
        if chunk is None:
            assert running == min(concurrency, sum(one[-1] >= number for one in steps))
        else:
            assert sum(expert % 100 < sizes[expert // 100][0] for expert in step) <= chunk


def routing(trace: RoutingTrace) -> list[object]:
    kept = (trace.n_tokens, trace.phase, trace.sequence, trace.weight)
    return [listed(trace), *(None if values is None else values.tolist() for values in kept)]


def dense(trace: RoutingTrace) -> np.ndarray:
    return np.unique(trace.steps, return_inverse=True)[1].astype(np.int32)


@pytest.mark.parametrize(
    ("parts", "asked", "found"),
    [
        ([A, B], {"concurrency": 0}, "concurrency 0; expected at least 1 request"),
        ([A, B], {"concurrency": 2, "prefill_chunk": 0}, "prefill chunks of 0 tokens; expected at least 1"),
        ([A, B], {"concurrency": 2, "arrivals_s": [1.0], "step_s": 0.1}, "1 arrivals for 2 requests; give one for"),
        ([A, B], {"concurrency": 2, "arrivals_s": [1.0, 2.0]}, "0 ms a step; arrivals need the time that a step tak"),
        ([A, B], {"concurrency": 2, "arrivals_s": [0, 1e9], "step_s": 0.01}, "arrivals over 1e\\+09 s at 10 ms a step"),
        ([A, B], {"concurrency": 2, "arrivals_s": [0, float("nan")], "step_s": 1}, "arrivals over nan s"),
        ([], {"concurrency": 2}, "no traces"),
        ([A, B.with_(layer=B.layer + np.int16(1))], {"concurrency": 2}, "a and b are of different models"),
    ],
)
def test_refusals(parts: Sequence[RoutingTrace], asked: dict[str, object], found: str) -> None:
    with pytest.raises(BadInput, match=found):
        batched(parts, **asked)  # type: ignore[arg-type]
