"""Hot sets by hand."""

from __future__ import annotations

import numpy as np
import pytest

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.trace.drift import hot_set_drift
from tests.trace.strategies import trace_of


def test_three_windows_by_hand() -> None:
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
    with pytest.raises(BadInput, match="has 1 steps; expected at least 2"):
        hot_set_drift(trace_of((0, [1])))
    with pytest.raises(BadInput, match="1 windows: expected at least 2"):
        hot_set_drift(trace_of((0, [1]), (0, [1])), windows=1)
