from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashmoe_sim.io.errors import BadInput, Incomplete, Malformed, OutOfRange, UnknownName
from flashmoe_sim.trace.check import check_trace
from flashmoe_sim.trace.cut import cut
from flashmoe_sim.trace.load import load_trace
from flashmoe_sim.trace.made_prompt import in_micro_batches, with_prompt
from flashmoe_sim.trace.merge import concat, union
from flashmoe_sim.trace.routing import RoutingTrace
from flashmoe_sim.trace.speculate import STAND_INS, speculate
from flashmoe_sim.trace.store import write_store
from flashmoe_sim.trace.write_jsonl import lost_in_jsonl
from tests.support import refused
from tests.trace import naive_what_if as naive
from tests.trace.strategies import model_traces, trace_of
from tests.trace.test_merge import A, by_layer, listed, same

LITTLE = settings(max_examples=60)

# A prompt of two tokens, then seven tokens of one layer: token n requests expert n.
TEXT = trace_of(
    (0, [8, 9]),
    *((0, [token]) for token in range(7)),
    n_tokens=[2, *[1] * 7],
    phase=np.array([1, *[2] * 7], np.uint8),
    name="text",
)


def experts(trace: RoutingTrace) -> list[list[int]]:
    return [asked for _, _, asked, _ in listed(trace)]


def test_all_accepted_by_hand() -> None:
    drafted = speculate(TEXT, draft=2)
    # a token and two drafted ones a step; the last token has none after it
    assert experts(drafted) == [[8, 9], [0, 1, 2], [3, 4, 5], [6]]
    assert drafted.n_tokens.tolist() == [2, 3, 3, 1]
    assert drafted.text.tolist() == [2, 3, 3, 1]
    assert drafted.steps.tolist() == [0, 1, 2, 3]
    assert drafted.phase.tolist() == [1, 2, 2, 2]
    assert drafted.tokens == TEXT.tokens
    assert (drafted.name, drafted.notes) == ("text, drafting 2", ("7 decode steps became 3, with 2 drafted in each",))


def test_none_accepted_by_hand() -> None:
    drafted = speculate(TEXT, draft=2, accept=0, rejected="next")
    assert experts(drafted) == [[8, 9], [0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5], [4, 5, 6], [5, 6], [6]]
    assert drafted.notes == (
        "7 decode steps became 7, with 2 drafted in each and accepted with probability 0 (seed 0): 18 tokens computed "
        "for 7, 11 rejected ones replaced by the true tokens; tok/s and figures per token are of the text",
    )
    assert drafted.text.tolist() == [2, 1, 1, 1, 1, 1, 1, 1]
    assert drafted.tokens == TEXT.tokens
    other = experts(speculate(TEXT, draft=2, accept=0))
    assert [call[0] for call in other[1:]] == [0, 1, 2, 3, 4, 5, 6]
    assert [len(call) for call in other] == [2, 3, 3, 3, 3, 3, 2, 1]
    # every stand-in is a decoded token, never the prompt
    assert {expert for call in other[1:] for expert in call} <= set(range(7))


def test_some_accepted_by_hand() -> None:
    # The draws of seed 1 for the eight steps, of which that of each step's first token counts: a draft of two has
    # both accepted below 0.25, one below 0.5.
    drawn = np.random.default_rng(1).random(8)
    assert drawn.round(2).tolist() == [0.51, 0.95, 0.14, 0.95, 0.31, 0.42, 0.83, 0.41]
    # Token 0 (0.95): none accepted. Token 1 (0.14): both, so on with 4. Token 4 (0.42): one, so on with 6.
    drafted = speculate(TEXT, draft=2, accept=0.5, rejected="next", seed=1)
    assert experts(drafted) == [[8, 9], [0, 1, 2], [1, 2, 3], [4, 5, 6], [6]]
    assert drafted.text.tolist() == [2, 1, 3, 2, 1]


def test_a_stand_in_adds_no_text_to_a_layer_that_the_true_token_skips() -> None:
    steps = trace_of((0, [0]), (1, [0]), (1, [0]), (0, [0]), (1, [0]), step=np.array([0, 0, 1, 2, 2], np.int32))
    drafted = speculate(steps, draft=1, accept=0, rejected="next")
    assert drafted.layer.tolist() == [0, 1, 0, 1, 0, 1]
    assert drafted.n_tokens.tolist() == [1, 2, 1, 2, 1, 1]
    assert drafted.text.tolist() == [1, 1, 0, 1, 1, 1]


def test_nothing_is_drafted_across_texts_prompts_and_wide_calls() -> None:
    texts = TEXT.with_(sequence=np.array([0, 0, 0, 1, 1, 1, 1, 1], np.int32))
    drafted = speculate(texts, draft=9)
    assert experts(drafted) == [[8, 9], [0, 1], [2, 3, 4, 5, 6]]
    assert drafted.sequence.tolist() == [0, 0, 1]
    second = TEXT.with_(phase=np.array([1, 2, 2, 2, 1, 2, 2, 2], np.uint8))
    assert experts(speculate(second, draft=9)) == [[8, 9], [0, 1, 2], [3], [4, 5, 6]]
    unknown = TEXT.with_(n_tokens=np.array([2, 1, 1, 0, 1, 1, 1, 1], np.int32))
    assert experts(speculate(unknown, draft=9)) == [[8, 9], [0, 1], [2], [3, 4, 5, 6]]


@given(
    model_traces(most=1),
    st.integers(0, 5),
    st.sampled_from([0.0, 0.3, 0.8, 1.0]),
    st.sampled_from(list(STAND_INS)),
    st.integers(0, 99),
)
@LITTLE
def test_the_plain_twin(parts: list[RoutingTrace], draft: int, accept: float, rejected: str, seed: int) -> None:
    (trace,) = parts
    unchanged = trace.with_(step=np.unique(trace.steps, return_inverse=True)[1].astype(np.int32))
    assert same(speculate(trace, draft=0), unchanged)
    if not naive.draftable(trace):
        if draft:
            with pytest.raises(Incomplete, match="nothing can be drafted"):
                speculate(trace, draft=draft)
        return
    drafted = speculate(trace, draft=draft, accept=accept, rejected=rejected, seed=seed)
    assert naive.equal(drafted, naive.speculate(trace, draft, accept, rejected, seed))
    assert (drafted.text <= drafted.n_tokens).all()
    if (trace.n_tokens == 1).all() and (drafted.n_tokens > 0).all():
        assert drafted.tokens == trace.tokens  # however many are accepted, the text is the same
    assert (drafted.n_text is None) == (draft == 0)
    if accept == 1:
        assert by_layer(drafted) == by_layer(trace)


def test_as_many_are_accepted_as_should_be() -> None:
    """A step of K drafts yields (1 - a^(K + 1)) / (1 - a) tokens on average (Leviathan et al., equation 1)."""
    tokens = 60_000
    long = trace_of(*((0, [number % 7]) for number in range(tokens)))
    before = 0
    for accept in (0.2, 0.5, 0.8, 0.95):
        drafted = speculate(long, draft=4, accept=accept, rejected="next", seed=3)
        expected = (1 - accept**5) / (1 - accept)
        assert tokens / drafted.calls == pytest.approx(expected, rel=0.01)
        assert tokens / drafted.calls > before
        before = tokens / drafted.calls
        assert drafted.calls == speculate(long, draft=4, accept=accept, seed=3).calls


@pytest.mark.parametrize(
    ("trace", "options", "found", "kind"),
    [
        (TEXT, {"draft": -1}, "draft -1 tokens; expected 0 to 64", OutOfRange),
        (TEXT, {"draft": 65}, "draft 65 tokens", OutOfRange),
        (TEXT, {"draft": 1, "accept": 1.5}, "accept 1.5; expected a probability, 0 to 1", OutOfRange),
        (TEXT, {"draft": 1, "accept": float("nan")}, "accept nan", OutOfRange),
        (TEXT, {"draft": 1, "seed": -1}, "seed -1; expected at least 0", OutOfRange),
        (TEXT, {"draft": 1, "rejected": "best"}, "'best'; known: next, random", UnknownName),
        (trace_of((0, [1, 2]), n_tokens=[2], name="p"), {"draft": 1}, "p: no two decode steps of one toke", Incomplete),
        (trace_of(), {"draft": 1}, "trace: no routed calls in it", Incomplete),
    ],
)
def test_refusals(trace: RoutingTrace, options: dict[str, object], found: str, kind: type[BadInput]) -> None:
    with refused(kind, found):
        speculate(trace, **options)  # type: ignore[arg-type]


def test_what_was_accepted_is_kept(tmp_path: Path) -> None:
    drafted = speculate(TEXT, draft=2, accept=0.5, rejected="next", seed=1)
    write_store(drafted, tmp_path / "drafted.parquet")
    read = load_trace(tmp_path / "drafted.parquet")
    assert read.equals(drafted)
    assert read.content_id == drafted.content_id != drafted.with_(n_text=None).content_id
    assert lost_in_jsonl(drafted) == ("phase", "n_text")
    assert cut(drafted, steps=(1, 3)).text.tolist() == [1, 3]
    assert concat([drafted, TEXT]).text.tolist() == [2, 1, 3, 2, 1, 2, *[1] * 7]
    assert union([drafted, TEXT]).text.tolist() == [4, 2, 4, 3, 2, 1, 1, 1]
    assert in_micro_batches(drafted, 1).text.tolist() == [1, 1, 1, 3, 2, 1]
    assert with_prompt(drafted, 3).trace.text.tolist() == [3, 1, 3, 2, 1]
    wrong = drafted.with_(n_text=drafted.n_tokens + np.int32(1))
    with pytest.raises(Malformed, match="n_text 0 is 3; the call has 2 tokens"):
        check_trace(wrong, where="here")


def test_what_is_kept() -> None:
    drafted = speculate(A, draft=1)
    assert listed(drafted) == [
        (0, 0, [1, 2, 3, 4], 2),
        (0, 1, [5, 6], 1),
        (1, 0, [7, 8, 1, 3], 2),
        (1, 1, [9, 0, 2, 4], 2),
    ]
    assert drafted.weight[6:].tolist() == [6, 7, 10, 11, 8, 9, 12, 13]
    assert drafted.slot is None
