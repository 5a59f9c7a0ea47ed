"""Copies in memory and from the page cache."""

from __future__ import annotations

import time
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from native_bridge.probe import memory
from native_bridge.probe.estimate import estimate
from native_bridge.probe.memory import measure_memory

MIB = 1 << 20


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "reads"
    path.write_bytes(np.random.default_rng(1).bytes(2 * MIB + 100))
    return path


def test_rates_are_bytes_copied_over_their_time(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies that take 2 ms for 0.5 MiB: one thread reaches 0.26 GB/s at most, three three times as much."""
    copyto = np.copyto

    def slow(target: np.ndarray, source: np.ndarray) -> None:
        copyto(target, source)
        time.sleep(0.002)

    monkeypatch.setattr(memory.np, "copyto", slow)
    until = time.monotonic() + 1
    found = measure_memory(file, threads=3, available_bytes=1 << 40, until=until, tell=str, most_bytes=3 * MIB // 2)
    assert found.buffer_bytes == 3 * MIB // 2
    assert found.cached_bytes == 3 * MIB // 2
    most = MIB / 2 / 0.002 / 1e9
    assert 0.05 * most < found.one.value <= most
    assert found.one.value < found.together.value <= 3 * most
    assert found.from_cache.value > 0
    assert found.first_touch.value > 0
    assert found.one.rounds == 5


def test_it_ends_in_time_and_says_nothing_it_did_not_measure(file: Path) -> None:
    found = measure_memory(file, threads=2, available_bytes=1 << 40, until=time.monotonic() - 1, tell=str)
    assert (found.one, found.together, found.from_cache, found.first_touch) == (None,) * 4
    started = time.monotonic()
    measure_memory(file, threads=2, available_bytes=1 << 28, until=started + 0.2, tell=str)
    assert time.monotonic() - started < 30


def test_buffers_take_a_quarter_of_what_is_free(file: Path) -> None:
    found = measure_memory(file, threads=1, available_bytes=8 * MIB, until=time.monotonic() + 0.1, tell=str)
    assert found.buffer_bytes == found.cached_bytes == MIB


def test_five_rounds_span_the_interval() -> None:
    """The median of all lies outside five rounds only if all five are on one side of it: 2 / 32, less than 10%."""
    found = estimate([3.0, 1.0, 5.0, 2.0, 4.0])
    assert (found.value, found.lo, found.hi, found.rounds) == (3.0, 1.0, 5.0, 5)


def test_of_eight_rounds_the_outermost_are_left_out() -> None:
    """Outside the second to the seventh of eight: 2 x (1 + 8) / 256 = 7%; outside the third to the sixth: 29%."""
    found = estimate([8.0, 1.0, 7.0, 2.0, 6.0, 3.0, 5.0, 4.0])
    assert (found.value, found.lo, found.hi) == (4.5, 2.0, 7.0)


def test_fewer_rounds_are_not_trusted_more_than_a_single_number() -> None:
    single, few, wide = estimate([10.0]), estimate([9.9, 10.0, 10.1]), estimate([5.0, 10.0, 20.0])
    assert (single.lo, single.hi) == pytest.approx((9, 11))
    assert (few.lo, few.hi) == pytest.approx((9, 11))
    assert (wide.lo, wide.hi) == (5.0, 20.0)


@pytest.mark.parametrize("n", range(5, 13))
def test_the_interval_holds_the_median_as_often_as_it_says(n: int) -> None:
    """Each round is above or below the median of all, as a coin falls: the twin tries all ways they can fall."""
    found = estimate([float(i) for i in range(n)])
    k = int(found.lo) + 1
    assert found.hi == n - k
    ways = [sum(fall) for fall in product((0, 1), repeat=n)]

    def held(k: int) -> float:
        return sum(k <= above <= n - k for above in ways) / len(ways)

    assert held(k) >= 0.9 > held(k + 1)


def test_a_quantity_keeps_four_digits_and_says_its_rounds() -> None:
    quantity = estimate([1.23456, 1.2, 1.3, 1.25, 1.1]).quantity("here", "cold", factor=2)
    assert (quantity.value, quantity.lo, quantity.hi) == (2.469, 2.2, 2.6)
    assert (quantity.source, quantity.condition, quantity.estimated) == ("here", "cold, 5 rounds", False)
