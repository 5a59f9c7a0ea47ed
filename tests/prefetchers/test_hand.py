"""Every predictor on a trace small enough to work out by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flashmoe_sim.prefetchers.table import parse_prefetcher
from flashmoe_sim.trace.routing import PHASE_DECODE, PHASE_PROMPT
from tests.residency.builders import Call, one_layer, trace_of
from tests.residency.compare import predictions_of

# Two layers, of which the second has no call in the second step.
TWO_STEPS: list[Call] = [(0, [3, 1], 1), (1, [2, 0, 2, 4], 2), (0, [1, 4], 1)]


def predicted(spec: str, calls: Sequence[Call]) -> list[tuple[int, int, list[int]]]:
    """The call after which, the layer and the experts of each prediction, in a model of 10 experts a layer."""
    return predictions_of(parse_prefetcher(spec), trace_of(calls, 10))


def test_none() -> None:
    assert predicted("none", TWO_STEPS) == []


def test_temporal_and_predict_prev() -> None:
    """A step ends after calls 1 and 2. After the second, layer 1 still has its call of the first, repeats and all."""
    expected = [(1, 0, [3, 1]), (1, 1, [2, 0, 2, 4]), (2, 0, [1, 4]), (2, 1, [2, 0, 2, 4])]
    assert predicted("temporal", TWO_STEPS) == expected
    assert predicted("predict-prev", TWO_STEPS) == expected


def test_predict_top1() -> None:
    """The first expert of the first token: that of the highest gate."""
    assert predicted("predict-top1", TWO_STEPS) == [(1, 0, [3]), (1, 1, [2]), (2, 0, [1]), (2, 1, [2])]


def test_hot() -> None:
    """Counts after each step: 0 1 once; then 1 twice, 0 and 2 once; then 1 and 2 twice. Ties: the lower number."""
    calls = one_layer([[0, 1], [2, 1], [2, 3]])
    assert predicted("hot:width=2", calls) == [(0, 0, [0, 1]), (1, 0, [1, 0]), (2, 0, [1, 2])]
    assert predicted("hot:width=9", calls)[2] == (2, 0, [1, 2, 0, 3])


def test_hot_counts_calls_and_not_references() -> None:
    """Expert 5 stands twice in the first call, for two tokens, and counts once: the lower 4 goes before it."""
    assert predicted("hot:width=1", [(0, [5, 4, 5, 6], 2)]) == [(0, 0, [4])]


def test_markov() -> None:
    """0 1 0 2 0 2 0: after 0 came first 1; then 1 and 2 once each, the lower before; then 2 twice. After 2 came 0."""
    assert predicted("markov:width=2", one_layer([[0], [1], [0], [2], [0], [2], [0]])) == [
        (0, 0, []),
        (1, 0, []),
        (2, 0, [1]),
        (3, 0, []),
        (4, 0, [1, 2]),
        (5, 0, [0]),
        (6, 0, [2, 1]),
    ]


def test_markov_sums_over_the_experts_of_the_call() -> None:
    """Before the last call: 0→2 and 1→2 from the first pair of calls, 0→3 from the third. For {0, 1} 2 scores two."""
    assert predicted("markov:width=2", one_layer([[0, 1], [2], [0], [3], [1, 0]]))[-1] == (4, 0, [2, 3])


def test_markov_learns_each_layer_by_itself() -> None:
    """Layer 0 goes 0 1 0, layer 1 0 2 0: in each, 0 is followed by its own."""
    calls: list[Call] = [(layer, [expert], 1) for step in ((0, 0), (1, 2), (0, 0)) for layer, expert in enumerate(step)]
    assert predicted("markov:width=2", calls)[-2:] == [(4, 0, [1]), (5, 1, [2])]


def test_next_layer() -> None:
    """With 0 of layer 0 went 5 of layer 1, with 1 went 6. Nothing comes after layer 2, which a step is without."""
    calls: list[Call] = [
        *[(0, [0], 1), (1, [5], 1), (2, [8], 1)],
        *[(0, [1], 1), (1, [6], 1)],
        *[(0, [0, 1], 1), (1, [6], 1), (2, [7], 1)],
        *[(0, [1], 1), (2, [9], 1)],  # without layer 1: nothing is learnt from neighbours that are none
        *[(0, [1], 1), (1, [6], 1)],
    ]
    assert predicted("next-layer:width=2", calls) == [
        (0, 1, []),
        (1, 2, []),
        (3, 1, []),
        (4, 2, []),
        (5, 1, [5, 6]),  # once each
        (6, 2, []),
        (8, 1, [6]),  # with 1 went 6 in the second step and the third
        (10, 1, [6]),
        (11, 2, [7]),
    ]


def test_eam_follows_the_step_with_most_in_common() -> None:
    """Step 1 shares 0 with step 0, step 2 shares 4 with step 1 alone; step 3 shares 0 with both: the more recent."""
    calls: list[Call] = [
        *[(0, [0, 1], 1), (1, [2, 3], 1)],
        *[(0, [0, 4], 1), (1, [6, 5], 1)],
        *[(0, [4, 7], 1), (1, [5, 9], 1)],
        *[(0, [0, 8], 1), (1, [1, 2], 1)],
    ]
    assert predicted("eam:width=2", calls) == [(2, 1, [2, 3]), (4, 1, [6, 5]), (6, 1, [6, 5])]


def test_eam_weighs_what_is_shared_by_the_size_of_the_step() -> None:
    """Step 2 shares one expert with either: cosine 1/√2 to the small step 0 is more than 1/√4 to the recent step 1.

    With only one step stored, step 1 is all there is.
    """
    calls: list[Call] = [
        *[(0, [0], 1), (1, [2], 1)],
        *[(0, [0, 1, 3], 3), (1, [5], 1)],
        *[(0, [0], 1), (1, [9], 1)],
    ]
    assert predicted("eam:width=1", calls) == [(2, 1, [2]), (4, 1, [2])]
    assert predicted("eam:width=1:stored=1", calls) == [(2, 1, [2]), (4, 1, [5])]


def test_eam_predicts_fewer_the_further_ahead() -> None:
    """Of four experts a layer the next takes four, then two (4/2), then one (4/3), for as far as `reach` goes."""
    step: list[Call] = [(layer, [layer, layer + 1, layer + 2, layer + 3], 1) for layer in range(5)]
    assert predicted("eam:width=4:reach=3", [*step, step[0]]) == [
        (5, 1, [1, 2, 3, 4]),
        (5, 2, [2, 3]),
        (5, 3, [3]),
    ]


def test_oracle_1() -> None:
    """Each call is predicted right after the one before it, the first before the run."""
    assert predicted("oracle-1", TWO_STEPS) == [(-1, 0, [3, 1]), (0, 1, [2, 0, 2, 4]), (1, 0, [1, 4])]


def test_oracle_w() -> None:
    """Each call is predicted when the step before its own ends, or the one before that; the first before the run."""
    assert predicted("oracle-w", TWO_STEPS) == [(-1, 0, [3, 1]), (-1, 1, [2, 0, 2, 4]), (1, 0, [1, 4])]
    assert [after for after, _, _ in predicted("oracle-w:steps=2", TWO_STEPS)] == [-1, -1, -1]
    assert [after for after, _, _ in predicted("oracle-w:steps=2", one_layer([[0], [1], [2], [3]]))] == [-1, -1, 0, 1]


def test_synthetic_at_its_ends() -> None:
    """All of the truth is each expert once; all of the rest are those of the ten that are not requested."""
    assert predicted("synthetic:recall=1", TWO_STEPS) == [(-1, 0, [3, 1]), (-1, 1, [2, 0, 4]), (1, 0, [1, 4])]
    for experts, (_, _, asked) in zip(
        [experts for _, _, experts in predicted("synthetic:recall=0:extra=10", TWO_STEPS)],
        predicted("synthetic:recall=1", TWO_STEPS),
        strict=True,
    ):
        assert sorted(experts) == sorted(set(range(10)) - set(asked))
    assert [len(experts) for _, _, experts in predicted("synthetic:recall=1:extra=3", TWO_STEPS)] == [5, 6, 5]


def test_synthetic_of_drafted_tokens_and_of_the_first_layers() -> None:
    """A prompt of two tokens, a pass that verifies a draft, and one of a single token: only the draft is foretold."""
    calls: list[Call] = [(0, [1, 2], 2), (1, [3, 4], 2), (0, [5, 6], 2), (1, [7, 8], 2), (0, [1], 1), (1, [2], 1)]
    trace = trace_of(calls, 10).with_(
        n_text=np.array([2, 2, 1, 1, 1, 1], np.int32),
        phase=np.repeat(np.array([PHASE_PROMPT, PHASE_DECODE], np.uint8), [2, 4]),
        step=np.repeat(np.arange(3, dtype=np.int32), 2),
    )

    def made(spec: str) -> list[tuple[int, int, list[int]]]:
        return predictions_of(parse_prefetcher(f"synthetic:recall=1:{spec}"), trace)

    assert made("drafted=true") == [(1, 0, [5, 6]), (1, 1, [7, 8])]
    assert made("drafted=True:layers=1") == [(1, 0, [5, 6])]
    assert [(after, layer) for after, layer, _ in made("layers=1")] == [(-1, 0), (1, 0), (3, 0)]
