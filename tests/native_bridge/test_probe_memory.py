"""Copies in memory and from the page cache."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from native_bridge.probe import memory
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
