import numpy as np
import pytest
from hypothesis import given, settings

from flashmoe_sim.io.errors import BadInput, Incomplete, OutOfRange, Unsupported
from flashmoe_sim.io.notes import DROPPED, code_of
from flashmoe_sim.trace.cut import cut, shown_layers
from flashmoe_sim.trace.routing import RoutingTrace
from tests.support import refused
from tests.trace.strategies import random_traces, trace_of

TRACE = trace_of(
    *[(0, [1, 2, 3, 4]), (1, [5, 6]), (0, [7, 8]), (1, [9, 0]), (0, [1, 3]), (1, [2, 4])],
    n_tokens=[2, 1, 1, 1, 1, 1],
    slots=[[0, 1, 2, 3], [0, 1], [4, 5], [2, 3], [0, 2], [4, 5]],
    top_k=2,
    weight=np.arange(14, dtype=np.float32),
    resident=np.zeros(14, dtype=np.uint8),
    expert_bytes={0: 10, 1: 20},
)


def test_the_first_ranks_of_every_token() -> None:
    part = cut(TRACE, top_k=1)
    np.testing.assert_array_equal(part.expert, [1, 3, 5, 7, 9, 1, 2])
    np.testing.assert_array_equal(part.offset, [0, 2, 3, 4, 5, 6, 7])
    np.testing.assert_array_equal(part.weight, [0, 2, 4, 6, 8, 10, 12])
    np.testing.assert_array_equal(part.n_tokens, TRACE.n_tokens)
    assert part.top_k == 1
    assert (part.slot, part.resident) == (None, None)
    assert part.notes == (
        "cut to the first 1 ranks of every token",
        "recorded slots and residency were dropped: they describe the run before the cut",
    )


def test_a_call_without_tokens_has_no_ranks_to_cut() -> None:
    part = cut(trace_of((0, [1, 2]), (1, []), (0, [3, 4]), n_tokens=[1, 0, 1]), top_k=1)
    assert part.offset.tolist() == [0, 1, 1, 2]
    assert part.expert.tolist() == [1, 3]


def test_layers() -> None:
    part = cut(TRACE, layers=[1])
    np.testing.assert_array_equal(part.layer, [1, 1, 1])
    np.testing.assert_array_equal(part.expert, [5, 6, 9, 0, 2, 4])
    np.testing.assert_array_equal(part.slot, [0, 1, 2, 3, 4, 5])
    np.testing.assert_array_equal(part.steps, [0, 1, 2])
    assert part.expert_bytes == {1: 20}
    assert part.n_experts == {1: 16}


def test_steps_are_counted_from_zero_again() -> None:
    part = cut(TRACE, steps=(1, 3))
    np.testing.assert_array_equal(part.expert, [7, 8, 9, 0, 1, 3, 2, 4])
    np.testing.assert_array_equal(part.steps, [0, 0, 1, 1])
    assert part.notes == ("cut to steps 1:3", "the recorded slots begin with a bank that is already filled")
    np.testing.assert_array_equal(cut(TRACE, steps=(None, 1)).expert, [1, 2, 3, 4, 5, 6])
    np.testing.assert_array_equal(cut(TRACE, steps=(2, None)).expert, [1, 3, 2, 4])


def test_all_at_once() -> None:
    part = cut(TRACE, top_k=1, layers=[0], steps=(0, 2))
    np.testing.assert_array_equal(part.expert, [1, 3, 7])
    assert [code_of(note) for note in part.notes] == [None, None, None, DROPPED]


def test_the_phases_of_the_whole_are_kept() -> None:
    part = cut(TRACE, layers=[0])
    assert part.phase.tolist() == [1, 2, 2]


@given(random_traces())
@settings(max_examples=40)
def test_layers_and_steps_together_hold_every_call(trace: RoutingTrace) -> None:
    if not trace.calls:
        return
    parts = [cut(trace, layers=[layer]) for layer in trace.layers]
    assert sum(part.refs for part in parts) == trace.refs
    for part, view in zip(parts, trace.by_layer, strict=True):
        np.testing.assert_array_equal(part.expert, view.expert)
        np.testing.assert_array_equal(part.offset, view.offset)
    middle = int(trace.steps[trace.calls // 2])
    later = cut(trace, steps=(middle, None))
    earlier = trace.refs - later.refs
    np.testing.assert_array_equal(later.expert, trace.expert[earlier:])


@pytest.mark.parametrize(
    ("trace", "options", "found", "kind"),
    [
        (TRACE, {"top_k": 3}, "top-k 3, but call 0 has 2 experts per token", OutOfRange),
        (TRACE, {"top_k": 0}, "top-k 0; expected at least 1", OutOfRange),
        (TRACE.with_(format="grouped-pairs"), {"top_k": 1}, "does not record the router-rank order", Unsupported),
        (TRACE.with_(n_tokens=np.zeros(6, dtype=np.int32)), {"top_k": 1}, "the tokens of call 0 are unkno", Incomplete),
        (TRACE, {"layers": [0, 7]}, "layer 7 is not in the trace, which has 0-1", OutOfRange),
        (TRACE, {"layers": []}, "nothing is left", OutOfRange),
        (TRACE, {"steps": (3, 9)}, "nothing is left; the trace has steps 0..2", OutOfRange),
    ],
)
def test_refusals(trace: RoutingTrace, options: dict[str, object], found: str, kind: type[BadInput]) -> None:
    with refused(kind, found):
        cut(trace, **options)  # type: ignore[arg-type]


def test_layers_as_ranges() -> None:
    assert shown_layers([20, 0, 1, 2, 5]) == "0-2,5,20"
    assert shown_layers([]) == ""


def test_the_name_says_what_was_cut() -> None:
    named = TRACE.with_(name="whole")
    assert cut(named, top_k=1).name == "whole, top-1"
    assert cut(named, layers=[1, 0]).name == "whole, layers 0-1"
    assert cut(named, steps=(1, None), layers=[0], top_k=2).name == "whole, layers 0, steps 1:, top-2"
    assert cut(TRACE, steps=(None, 2)).name == "trace, steps :2"
