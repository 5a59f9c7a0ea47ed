"""The smallest number that is enough."""

from __future__ import annotations

import pytest

from flashmoe_sim.ceilings.search import smallest


@pytest.mark.parametrize("most", range(40))
def test_every_threshold(most: int) -> None:
    for threshold in range(most + 2):
        tried: list[int] = []

        def enough(number: int, threshold: int = threshold, tried: list[int] = tried) -> bool:
            tried.append(number)
            return number >= threshold

        assert smallest(enough, most) == (threshold if threshold <= most else None)
        assert len(tried) == len(set(tried))
        assert all(0 <= number <= most for number in tried)


def test_few_are_tried() -> None:
    tried: list[int] = []
    assert smallest(lambda number: bool(tried.append(number)) or number >= 700_000, 10**6) == 700_000
    assert len(tried) <= 42


def test_what_is_found_is_enough_even_where_more_may_not_be() -> None:
    for pattern in range(1, 2**9):
        found = smallest(lambda number, pattern=pattern: bool(pattern >> number & 1), 8)
        assert found is None or pattern >> found & 1
        assert found is not None or not pattern >> 8 & 1


def test_nothing_to_try() -> None:
    assert smallest(lambda number: True, -1) is None
