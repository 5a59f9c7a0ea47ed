"""`bounded-swaps` on traces worked out by hand: the first fill, and who is swapped when."""

from __future__ import annotations

import numpy as np
import pytest

from flashmoe_sim.policies.base import Candidates
from flashmoe_sim.policies.bounded_swaps import first_fill
from flashmoe_sim.residency.replay import Replayed
from tests.residency.builders import Call, came_after, held, hits_of, one_layer, run, some, trace_of


def swapped(calls: list[Call], slots: int, **parameters: float) -> Replayed:
    """Calls of layers of 4 experts, with the first step as the profile."""
    spec = ":".join(["bounded-swaps:profile_steps=1", *(f"{name}={value}" for name, value in parameters.items())])
    return run(trace_of(calls, 4), slots, spec, record=True)


def test_uses_decay_and_the_gain_must_be_large_enough() -> None:
    """One slot, which expert 0 fills; a round every two windows.

    After window 2: expert 1 was used once, less than twice. Both counts decay to 0.7. After window 4: 2.7 against 0.7,
    a gain of 2. After window 6 expert 1 has 2.7 x 0.7 + 1 and expert 2 has 1: nothing.
    """
    result = swapped(one_layer([[0], [1], [1], [1], [1], [2]]), 1, every=2)
    assert hits_of(result) == [1, 0, 0, 0, 1, 0]
    assert came_after(result) == [0, 0, 0, 1, 0, 0]
    assert held(result) == [[1]]
    assert some(result, "misses", "cold", "evictions", "prefetch_issued", "prefetch_useful") == (4, 0, 0, 1, 1)


@pytest.mark.parametrize(("gain", "least", "swap_after"), [(1.0, 2, 3), (1.5, 2, 4), (0.0, 3, 4), (2.5, 2, 5)])
def test_gain_and_least_use_are_reached_when_equal(gain: float, least: float, swap_after: int) -> None:
    """Without decay expert 0 keeps its use of 1, and expert 1 has a use of n after window n + 1."""
    result = swapped(one_layer([[0], *[[1]] * 5]), 1, every=1, gain=gain, least=least, decay=1.0)
    assert came_after(result) == [int(window == swap_after) for window in range(1, 7)]


def test_the_best_absent_displace_the_worst_residents_pair_by_pair() -> None:
    """Slots for 0 and 1. Uses after the second step: 0 has 1, 1 has 2, 2 has 3, 3 has 3.

    By number 2 comes first: it displaces 0, a gain of 2. The second pair, 3 and 1, gains 1: less than 1.5.
    """
    calls = one_layer([[0, 1], [1, 2, 2, 2, 3, 3, 3]])
    result = swapped(calls, 2, every=2, least=0)
    assert held(result) == [[1, 2]]
    assert held(swapped(calls, 2, every=2, least=0, gain=1)) == [[2, 3]]


def test_swaps_of_all_layers_are_limited_together() -> None:
    """Two layers; layer 1 gains 3 and layer 0 gains 2. Of one swap it is layer 1's; of gains alike layer 0's."""
    first, rest = [(0, [0], 1), (1, [0], 1)], [(0, [1] * 3, 1), (1, [1] * 4, 1)]
    alike = [(0, [1] * 4, 1), (1, [1] * 4, 1)]
    assert held(swapped([*first, *rest], 1, every=2, swaps=1)) == [[0], [1]]
    assert held(swapped([*first, *alike], 1, every=2, swaps=1)) == [[1], [0]]
    assert held(swapped([*first, *rest], 1, every=2, swaps=2)) == [[1], [1]]
    assert held(swapped([*first, *rest], 1, every=2, swaps=0)) == [[0], [0]]


def test_batches_of_more_than_64_tokens_neither_count_nor_are_windows() -> None:
    for tokens, after in ((64, [[1]]), (65, [[0]])):
        calls: list[Call] = [(0, [0], 1), (0, [1] * 4, tokens)]
        assert held(swapped(calls, 1, every=2)) == after


def test_the_first_fill_ends_before_the_first_expert_that_does_not_fit() -> None:
    """Experts of 2 bytes in layer 0 and of 3 in layer 1. By use: 1:0 (3 bytes), 0:1 (5), 1:1 (8), 0:0 (10)."""
    uses, rows = np.array([1, 5, 9, 4]), np.array([0, 0, 1, 1])
    for budget, fits in ((2, ""), (3, "2"), (7, "12"), (8, "123"), (9, "123"), (10, "0123")):
        candidates = Candidates([uses[:2], uses[2:]], [], [2, 2], [2, 3], budget)
        assert "".join(map(str, np.flatnonzero(first_fill(uses, rows, candidates)))) == fits
