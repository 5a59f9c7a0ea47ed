from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashmoe_sim.io.errors import BadInput, Conflict, Incomplete, OutOfRange, TooLarge
from flashmoe_sim.trace.cut import cut
from flashmoe_sim.trace.lint import lint
from flashmoe_sim.trace.merge import concat, interleave, union
from flashmoe_sim.trace.phases import find_phases
from flashmoe_sim.trace.routing import RoutingTrace
from flashmoe_sim.trace.statistics import inspect, union_by_call
from tests.support import refused
from tests.trace import naive_what_if as naive
from tests.trace.strategies import model_traces, trace_of

LITTLE = settings(max_examples=60)

# A prompt of two tokens whose last layer computes one row, then two tokens. B has no prompt, and ends first.
A = trace_of(
    *[(0, [1, 2, 3, 4]), (1, [5, 6])],
    *[(0, [7, 8]), (1, [9, 0])],
    *[(0, [1, 3]), (1, [2, 4])],
    n_tokens=[2, 1, 1, 1, 1, 1],
    slots=[[0, 1, 2, 3], [0, 1], [4, 5], [2, 3], [0, 2], [4, 5]],
    phase=np.array([1, 1, 2, 2, 2, 2], np.uint8),
    top_k=2,
    weight=np.arange(14, dtype=np.float32),
    name="a",
)
B = trace_of(
    *[(0, [2, 7]), (1, [5, 1])],
    *[(0, [6, 5]), (1, [4, 3])],
    phase=np.array([2, 2, 2, 2], np.uint8),
    top_k=2,
    weight=np.arange(20, 28, dtype=np.float32),
    name="b",
)


def by_layer(*traces: RoutingTrace) -> Counter[tuple[int, int]]:
    """How often each layer requests each expert, repeats included."""
    return Counter(
        (view.layer, expert) for trace in traces for view in trace.by_layer for expert in view.expert.tolist()
    )


def listed(trace: RoutingTrace) -> list[tuple[int, int, list[int], int]]:
    """(step, layer, experts, tokens) of every call."""
    return [
        (int(trace.steps[call]), int(trace.layer[call]), trace.expert[begin:end].tolist(), int(trace.n_tokens[call]))
        for call, (begin, end) in enumerate(zip(trace.offset[:-1], trace.offset[1:], strict=True))
    ]


def same(one: RoutingTrace, other: RoutingTrace) -> bool:
    """Whether the routing, its weights and its steps, from 0, are the same."""
    weights = [None if trace.weight is None else trace.weight.tolist() for trace in (one, other)]
    return (
        listed(one) == [(step - int(other.steps[0]), *rest) for step, *rest in listed(other)]
        and weights[0] == weights[1]
    )


def test_union_by_hand() -> None:
    merged = union([A, B])
    # Step 0: the prompt of A with the first token of B, in both layers. Step 2: A alone.
    assert listed(merged) == [
        (0, 0, [1, 2, 3, 4, 2, 7], 3),
        (0, 1, [5, 6, 5, 1], 2),
        (1, 0, [7, 8, 6, 5], 2),
        (1, 1, [9, 0, 4, 3], 2),
        (2, 0, [1, 3], 1),
        (2, 1, [2, 4], 1),
    ]
    assert merged.weight[:10].tolist() == [0, 1, 2, 3, 20, 21, 4, 5, 22, 23]
    assert merged.phase.tolist() == [0, 0, 2, 2, 2, 2]
    assert (merged.sequence, merged.slot, merged.top_k) == (None, None, 2)
    assert merged.tokens == 6
    # 2 is requested by both in the first call, and 5 in the second: one request each.
    assert union_by_call(merged).tolist() == [5, 3, 4, 4, 2, 2]
    assert (merged.name, merged.notes) == ("union of a, b", ("union of a, b",))


def test_staggered_union_by_hand() -> None:
    merged = union([B, B, B], stagger=1)
    # The second copy begins at step 1 of two and goes round; the third is two steps further on, at 0 again.
    assert listed(merged) == [
        (0, 0, [2, 7, 6, 5, 2, 7], 3),
        (0, 1, [5, 1, 4, 3, 5, 1], 3),
        (1, 0, [6, 5, 2, 7, 6, 5], 3),
        (1, 1, [4, 3, 5, 1, 4, 3], 3),
    ]
    assert merged.notes == ("union of 3 x b, each 1 step further into its trace than the one before",)


def test_a_layer_that_one_part_does_not_compute() -> None:
    # As a prompt at micro-batch 1 is recorded: the last layer is only there in the step that ends it.
    prompt = trace_of((0, [1]), (1, [2]), (0, [3]), (1, [4]), (2, [5]), name="p")
    merged = union([prompt, trace_of((0, [6]), (1, [7]), (2, [8]), name="q")])
    assert [(step, layer, experts) for step, layer, experts, _ in listed(merged)] == [
        (0, 0, [1, 6]),
        (0, 1, [2, 7]),
        (0, 2, [8]),
        (1, 0, [3]),
        (1, 1, [4]),
        (1, 2, [5]),
    ]


def test_concat_and_interleave_by_hand() -> None:
    behind = concat([A, B])
    assert listed(behind) == [*listed(A), *((step + 3, *rest) for step, *rest in listed(B))]
    assert behind.sequence.tolist() == [0] * 6 + [1] * 4
    turns = interleave([A, B], every=1)
    assert turns.sequence.tolist() == [0, 0, 1, 1, 0, 0, 1, 1, 0, 0]
    assert [step for step, *_ in listed(turns)] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert [experts for _, _, experts, _ in listed(turns)][2:6] == [[2, 7], [5, 1], [7, 8], [9, 0]]
    assert listed(interleave([A, B], every=3)) == listed(behind)
    assert turns.notes == ("interleaving of a, b, 1 step of each in turn",)


def test_tokens_of_unequal_width_are_not_counted() -> None:
    """Three ids for one token and one for another are not two tokens of two."""
    wide, narrow = trace_of((0, [1, 2, 3]), (0, [1, 2, 3])), trace_of((0, [4]), (0, [5]), n_tokens=[1, 0])
    assert union([wide, narrow]).n_tokens.tolist() == [0, 0]
    assert union([wide, wide, wide]).n_tokens.tolist() == [3, 3]
    unknown = narrow.with_(n_tokens=np.zeros(2, np.int32))
    assert union([wide, unknown]).n_tokens.tolist() == [0, 0]
    assert union([unknown]).n_tokens.tolist() == [0, 0]


def test_the_prompt_is_not_mistaken() -> None:
    """Calls of several tokens are a prompt in a recording, but not in a union; if nothing tells, nothing does."""
    silent = union([B.with_(phase=None)] * 2)
    assert find_phases(silent) is None
    assert inspect(silent).prompt_share is None
    # one of two steps of B is decoded with a prompt: neither the one nor the other
    mixed = union([A, B])
    messages = {finding.code: finding.message for finding in lint(mixed)}
    assert messages["one-phase"] == "every step is decode, or unknown (1 of 3) (as recorded)"
    # two prompts, of one step and of four: steps 1 and 2 have tokens of both kinds, step 3 is the end of the longer one
    prompt = concat([A, A]).with_(phase=np.array([1] * 8 + [2] * 4, np.uint8))
    assert {finding.code: finding.step for finding in lint(union([A, prompt]))}["prompt-ends"] == 3


def test_the_decode_while_loading_is_left_in_and_noted() -> None:
    step = [(0, [1]), (1, [2])]
    loading = trace_of((0, [1]), *step, (0, [3]), *step, *step, name="r", format="runtime-jsonl")
    found = find_phases(loading)
    assert found.warm_up_steps == 2
    merged = union([loading, loading, B])
    assert merged.notes[-1] == (
        "2 of 3 parts begin with the decode that a runtime makes while loading; "
        "`sim trace cut --steps 2:` leaves it out"
    )
    assert by_layer(merged) == by_layer(loading, loading, B)


def test_what_the_parts_say_of_their_model() -> None:
    known = B.with_(n_experts={0: 10, 1: 10}, n_experts_known=True, expert_bytes={0: 5, 1: 6}, dense_bytes={0: 1})
    merged = union([A, known, known.with_(dense_bytes={0: 2})])
    assert (merged.n_experts, merged.n_experts_known) == ({0: 10, 1: 10}, True)
    assert (merged.expert_bytes, merged.dense_bytes) == ({0: 5, 1: 6}, None)
    assert concat([A.with_(format="runtime-jsonl"), B.with_(format="grouped-pairs")]).format == "grouped-pairs"
    inferred = union([A, B.with_(n_experts={0: 64, 1: 64}, top_k=0, weight=None)])
    assert (inferred.n_experts, inferred.n_experts_known, inferred.top_k) == ({0: 64, 1: 64}, False, 0)
    assert inferred.weight is None
    assert union([A.with_(notes=("torn",)), B, A.with_(notes=("torn",))]).notes == ("a: torn", "union of a, b, a")
    assert union([A.with_(name=f"t{number}") for number in range(4)]).name == "union of 4 traces"


def test_sequences_count_on() -> None:
    texts = A.with_(sequence=np.array([7, 7, 3, 3, 3, 3], np.int32))
    merged = concat([texts, B, texts])
    assert merged.sequence.tolist() == [1, 1, 0, 0, 0, 0, 2, 2, 2, 2, 4, 4, 3, 3, 3, 3]


@given(model_traces(), st.integers(0, 20))
@LITTLE
def test_union_is_the_plain_twin(parts: list[RoutingTrace], stagger: int) -> None:
    merged = union(parts, stagger=stagger)
    assert naive.equal(merged, naive.union(parts, stagger))
    assert by_layer(merged) == by_layer(*parts)


@given(model_traces(), st.integers(1, 8))
@LITTLE
def test_in_turns_is_the_plain_twin(parts: list[RoutingTrace], every: int) -> None:
    assert naive.equal(concat(parts), naive.concat(parts))
    merged = interleave(parts, every=every)
    assert naive.equal(merged, naive.interleave(parts, every))
    assert by_layer(merged) == by_layer(*parts)


@given(model_traces())
@LITTLE
def test_laws(parts: list[RoutingTrace]) -> None:
    first = parts[0]
    for alone in (union([first]), union([first], stagger=0), concat([first]), interleave([first], every=3)):
        assert same(alone, first)
        assert alone.n_experts == first.n_experts
    behind = concat(parts)
    begin = 0
    for part in parts:
        end = begin + int(part.steps[-1] - part.steps[0]) + 1
        assert same(
            cut(behind, steps=(begin, end)), part.with_(weight=part.weight if behind.weight is not None else None)
        )
        begin = end
    assert behind.tokens <= sum(part.tokens for part in parts)
    turns = interleave(parts, every=2)
    assert turns.sequence is not None
    for number in range(int(behind.sequence.max()) + 1):
        calls = [[listed(one)[call][1:] for call in np.flatnonzero(one.sequence == number)] for one in (turns, behind)]
        assert calls[0] == calls[1]
    order = list(reversed(parts))
    assert union_by_call(union(parts)).tolist() == union_by_call(union(order)).tolist()
    round_once = 13 if all(part.steps[-1] - part.steps[0] == 12 for part in parts) else 0
    assert same(union(parts, stagger=round_once), union(parts))


@pytest.mark.parametrize(
    ("parts", "found", "kind"),
    [
        ([A, B.with_(layer=B.layer + np.int16(1))], "a and b are of different models: layers 0-1 and 1-2; g", Conflict),
        ([A, B.with_(top_k=1)], "a and b are of different models: 2 and 1 experts per token", Conflict),
        (
            [A.with_(n_experts_known=True), B.with_(n_experts={0: 16, 1: 12}, n_experts_known=True)],
            "16 and 12 experts",
            Conflict,
        ),
        ([B.with_(n_experts={0: 8, 1: 8}, n_experts_known=True), A], "b and a are of different models: 8 ex", Conflict),
        (
            [A.with_(expert_bytes={0: 5, 1: 6}), B, B.with_(expert_bytes={0: 5, 1: 7})],
            "a and b are of different models: 6 and 7 bytes an expert in layer 1",
            Conflict,
        ),
        ([A, trace_of(name="c")], "c: no routed calls in it", Incomplete),
        ([], "no traces", Incomplete),
        (
            [A.with_(step=np.array([0, 0, 1, 1, 2**31 - 1, 2**31 - 1], np.int32)), B],
            "steps; expected at most 2,147,483,648",
            TooLarge,
        ),
    ],
)
def test_refusals(parts: list[RoutingTrace], found: str, kind: type[BadInput]) -> None:
    with refused(kind, found):
        concat(parts)


def test_refused_numbers() -> None:
    with pytest.raises(OutOfRange, match="stagger -1 steps; expected 0 to 2147483647"):
        union([A, B], stagger=-1)
    with pytest.raises(OutOfRange, match="turns of 0 steps; expected 1 to 2147483647"):
        interleave([A, B], every=0)


def test_gate_weights_that_one_part_lacks_are_left_out_with_a_note() -> None:
    bare = B.with_(weight=None)
    for merged in (concat([A, bare]), union([bare, A, bare])):
        assert merged.weight is None
        assert "gate weights are left out: b has none" in merged.notes
    for alike in (concat([A, B]), concat([bare, bare])):
        assert not any("gate weights" in note for note in alike.notes)
