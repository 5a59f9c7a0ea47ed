import numpy as np
import pytest
from hypothesis import given, settings

from flashmoe_sim.io.errors import Incomplete, OutOfRange
from flashmoe_sim.trace.routing import PHASE_DECODE, PHASE_PROMPT, RoutingTrace
from flashmoe_sim.trace.statistics import (
    aliased_by_call,
    hot_set_drift,
    inspect,
    normalised_entropy,
    top_decile_share,
    union_by_call,
)
from tests.trace import naive
from tests.trace.strategies import random_traces, trace_of

LITTLE = settings(max_examples=60)


def quantile(distances: list[int], percent: int) -> int | None:
    """The smallest value that at least this share of the sorted values does not exceed."""
    return distances[-(-percent * len(distances) // 100) - 1] if distances else None


def test_one_layer_by_hand() -> None:
    # Calls {0,1} {0,2} {0,1} {3}. Most recent first before each: -, 1 0, 2 0 1, 1 0 2.
    # 0 is found at 1, then at 1; 1 at 2; 0, 1, 2 and 3 are first uses.
    trace = trace_of((4, [0, 1]), (4, [0, 2]), (4, [0, 1]), (4, [3]))
    statistics = inspect(trace, banks=[1, 2, 4])
    layer = statistics.layers[0]
    assert (layer.layer, layer.calls, layer.refs, layer.requests, layer.distinct, layer.n_experts) == (4, 4, 7, 7, 4, 4)
    assert (layer.union.mean, layer.union.p50, layer.union.max) == (1.75, 2, 2)
    assert (layer.reuse.p50, layer.reuse.p90, layer.reuse.first_uses) == (1, 2, 4)
    # {0,2} shares 0 of 2; {0,1} shares 0 of 2; {3} shares nothing of 1.
    assert layer.overlap == 2 / 5
    # 0 is asked 3 times of 7; a tenth of 4 experts is rounded up to one.
    assert layer.top_decile_share == 3 / 7
    assert [bank.calls_over for bank in statistics.banks] == [3, 0, 0]
    assert [bank.union_over_slots_p50 for bank in statistics.banks] == [2.0, 1.0, 0.5]
    assert statistics.aliased_refs is None
    assert statistics.prompt_share is None


@given(random_traces())
@LITTLE
def test_equal_to_the_plain_twins(trace: RoutingTrace) -> None:
    if not trace.calls:
        with pytest.raises(Incomplete, match="no routed calls"):
            inspect(trace)
        return
    statistics = inspect(trace)
    everything: list[int] = []
    for layer in statistics.layers:
        distances, first_uses = naive.reuse_distances(trace, layer.layer)
        everything += distances
        assert layer.reuse.first_uses == first_uses
        assert (layer.reuse.p50, layer.reuse.p90) == (quantile(distances, 50), quantile(distances, 90))
        for slots in (1, 2, 3, 5, 8):
            assert sum(distance < slots for distance in distances) == naive.lru_hits(trace, layer.layer, slots)
        shared, compared = naive.overlap(trace, layer.layer)
        assert layer.overlap == (shared / compared if compared else None)
        unions = [len(set(experts)) for _, _, experts in naive.calls_of(trace, layer.layer)]
        assert (layer.requests, layer.union.max) == (sum(unions), max(unions))
        assert layer.union.p99 == quantile(sorted(filter(None, unions)) or [0], 99)
    assert statistics.reuse.p99 == quantile(sorted(everything), 99)
    if trace.slot is not None:
        assert aliased_by_call(trace).tolist() == naive.aliased(trace)
        assert statistics.aliased_refs == sum(naive.aliased(trace))
    bounds = trace.offset.tolist()
    assert union_by_call(trace).tolist() == [
        len(set(trace.expert[bounds[call] : bounds[call + 1]].tolist())) for call in range(trace.calls)
    ]


def test_aliasing_by_hand() -> None:
    # 9 sits in the slot of 7, which is counted once; 5 is repeated in its own slot, which is not aliasing.
    slots = [[2, 3, 2, 3], [0, 1, 0, 0]]
    trace = trace_of((0, [7, 5, 9, 5]), (0, [1, 2, 3, 4]), slots=slots)
    assert aliased_by_call(trace).tolist() == [1, 2]
    assert inspect(trace).aliased_refs == 3


def test_skew_by_hand() -> None:
    assert top_decile_share(np.array([5, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0])) == 6 / 10
    assert top_decile_share(np.zeros(4, dtype=np.int64)) == 0.0
    assert normalised_entropy(np.array([3, 3, 3, 3])) == pytest.approx(1.0)
    assert normalised_entropy(np.array([3, 0, 0, 0])) == 0.0
    assert normalised_entropy(np.array([3])) == normalised_entropy(np.zeros(4, np.int64)) == 1.0
    assert normalised_entropy(np.array([2, 2, 0, 0])) == pytest.approx(0.5)


def test_recorded_phases_give_the_prompt_share() -> None:
    phase = np.array([PHASE_PROMPT, PHASE_PROMPT, PHASE_DECODE, PHASE_DECODE], dtype=np.uint8)
    trace = trace_of((0, [1, 2, 3]), (1, [1]), (0, [1]), (1, [1]), n_tokens=[3, 1, 1, 1], phase=phase)
    statistics = inspect(trace)
    assert (statistics.prompt_share, statistics.phases_recorded, statistics.tokens) == (0.75, True, 4)


def test_a_bank_has_at_least_one_slot() -> None:
    with pytest.raises(OutOfRange, match="a bank of 0 slots"):
        inspect(trace_of((0, [1])), banks=[4, 0])


def test_hot_sets_of_three_windows_by_hand() -> None:
    """Two layers of 20 experts, so 2 of each are hot; 3 windows of 2 steps.

    Layer 0 requests 0 and 1, then 0 and 1 again, then 1 and 2. Layer 1 requests 5 twice, 6 twice, then 5 and 7.
    The second window has 0, 1 and 6: 2 of 3 were hot in the first. The third has 1, 2, 5 and 7: 1 and 5 were hot in
    the first, only 1 in the second.
    """
    layer_0 = [[0], [1], [0], [1], [1], [2]]
    layer_1 = [[5], [5], [6], [6], [5], [7]]
    calls = [(layer, experts) for both in zip(layer_0, layer_1, strict=True) for layer, experts in enumerate(both)]
    found = hot_set_drift(trace_of(*calls, n_experts={0: 20, 1: 20}), windows=3)
    assert found.first_step.tolist() == [0, 2, 4]
    assert found.last_step.tolist() == [1, 3, 5]
    assert found.of_first.tolist() == [1, 2 / 3, 2 / 4]
    assert found.of_previous.tolist() == [1, 2 / 3, 1 / 4]
    assert found.chance == 0.1


def test_only_the_most_requested_are_hot_and_ties_go_to_the_lower_number() -> None:
    """One of 10 is hot: 3, then 4 by two to one, then 3 again, which is tied with 4 and lower."""
    calls = [(0, [3]), (0, [3, 4]), (0, [4]), (0, [3]), (0, [4]), (0, [4]), (0, [4]), (0, [3]), (0, [9])]
    found = hot_set_drift(trace_of(*calls, n_experts={0: 10}), windows=3)
    assert found.of_first.tolist() == [1, 0, 1]
    assert found.of_previous.tolist() == [1, 0, 0]


def test_a_window_without_requests_has_no_hot_set() -> None:
    found = hot_set_drift(trace_of((0, [1]), (0, []), n_experts={0: 4}), windows=20)
    np.testing.assert_array_equal(found.of_first, [1, 0])


def test_what_has_no_windows() -> None:
    with pytest.raises(Incomplete, match="has 1 steps; expected at least 2"):
        hot_set_drift(trace_of((0, [1])))
    with pytest.raises(OutOfRange, match="1 windows: expected at least 2"):
        hot_set_drift(trace_of((0, [1]), (0, [1])), windows=1)
