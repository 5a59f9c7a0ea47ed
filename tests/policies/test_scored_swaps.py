"""`scored-swaps` on traces worked out by hand: who comes when, who goes, and who may not come."""

from __future__ import annotations

import pytest

from flashmoe_sim.residency.replay import Replayed
from tests.residency.builders import Call, came_after, held, hits_of, one_layer, run, some, trace_of


def swapped(calls: list[Call], slots: int, **parameters: float) -> Replayed:
    """Calls of layers of 4 experts, whose score is their recent use alone unless a weight is given."""
    settings = {"weight": 0, **parameters}
    spec = ":".join(["scored-swaps", *(f"{name}={value}" for name, value in settings.items())])
    return run(trace_of(calls, 4), slots, spec, record=True)


def test_a_newcomer_is_there_from_the_step_after_the_next() -> None:
    """One slot. Expert 0 fills it after step 1, and is uploaded beside step 2. Expert 1 is missed in steps 2 and 3.

    After step 3 expert 1 has two uses, one more than 0, and displaces it at once: 0 misses in step 4. In step 5 expert
    1 is there. Expert 0 has two uses by then, too, which is not one more.
    """
    result = swapped(one_layer([[0], [1], [1], [0], [1]]), 1, lead=1)
    assert hits_of(result) == [0, 0, 0, 0, 1]
    assert came_after(result) == [0, 1, 0, 1, 0]
    assert held(result) == [[1]]
    assert some(result, "misses", "bypassed", "prefetch_issued", "prefetch_useful") == (4, 4, 2, 1)


@pytest.mark.parametrize(("lead", "admit", "leaves_after"), [(0, 2, 3), (0, 3, 4), (1, 0, 3), (1.5, 0, 4), (2, 2, 4)])
def test_it_displaces_with_enough_uses_and_enough_more(lead: float, admit: int, leaves_after: int) -> None:
    """Expert 0 keeps its one use, and expert 1 has a use of n after step n + 1; one step later it is there."""
    result = swapped(one_layer([[0], *[[1]] * 5]), 1, lead=lead, admit=admit)
    assert came_after(result) == [int(step in (2, leaves_after + 1)) for step in range(1, 7)]


def test_what_has_just_come_may_go_at_once() -> None:
    """After step 2 expert 0 comes, and 1 has as many uses."""
    assert came_after(swapped(one_layer([[0], [1], [1]]), 1, admit=1)) == [0, 0, 1]


def test_empty_slots_need_no_swap() -> None:
    result = swapped(one_layer([[0, 1, 2], [3], [3]]), 2, swaps=0)
    assert held(result) == [[0, 1]]
    assert held(swapped(one_layer([[0, 1, 2, 2], [3], [3]]), 2, swaps=0)) == [[0, 2]]


def test_layers_take_turns_with_the_swaps_of_a_step() -> None:
    """Two layers with one slot each, and one swap a step. The turn is 1's after step 1 and 0's after step 2."""
    calls: list[Call] = [(layer, experts, 1) for experts in ([0], [0], [1, 1, 1], [2]) for layer in (0, 1)]
    assert held(swapped(calls, 1, swaps=1)) == [[0], [1]]
    assert held(swapped(calls, 1, swaps=2)) == [[1], [1]]
    assert held(swapped([*calls[:2], *calls], 1, swaps=1)) == [[1], [0]]


def test_uses_leave_with_the_last_tokens_and_the_weight_counts_all_time() -> None:
    """One slot, of two tokens the uses. Expert 0 is used three times, and then 1 twice, when 0 has no recent use.

    With a weight of 6 expert 0 has 6 of 6, and 1 has 2 + 6 x 2 / 3 = 6: as much. With 7 it has 2 + 14 / 3 < 7.
    """
    calls = one_layer([[0], [0], [0], [1], [1], [2]])
    assert held(swapped(calls, 1, recent=2, weight=6)) == [[1]]
    assert held(swapped(calls, 1, recent=2, weight=7)) == [[0]]
    # a use that has left does not admit: of the last two tokens one is 1's
    assert held(swapped(one_layer([[0], [1], [2], [1], [3]]), 1, recent=2)) == [[0]]
    assert held(swapped(one_layer([[0], [1], [2], [1], [3]]), 1, recent=3)) == [[1]]


def test_calls_of_more_than_31_tokens_are_not_counted_and_find_residents() -> None:
    for tokens, hits, after in ((31, [0, 0, 2], [[0, 1]]), (32, [0, 0, 0], [[]])):
        calls: list[Call] = [(0, [0, 1] * 5, tokens), (0, [2], 32), (0, [0, 1], tokens)]
        result = swapped(calls, 2)
        assert hits_of(result) == hits
        assert held(result) == after
    calls = [(0, [0, 1], 1), (0, [2], 1), (0, [0, 1, 2, 3], 32)]
    assert hits_of(swapped(calls, 2, profile_steps=1)) == [2, 0, 2]


def test_a_profile_fills_the_slots_and_counts() -> None:
    """The first two steps use 1 three times and 0 once; 3 never, so that its slot stays empty."""
    calls = one_layer([[1, 1], [0, 1], [2]])
    assert hits_of(swapped(calls, 3, profile_steps=2)) == [1, 2, 0]
    assert held(swapped(calls, 1, profile_steps=2)) == [[1]]
    assert held(swapped(calls, 4, profile_steps=1)) == [[0, 1]]
