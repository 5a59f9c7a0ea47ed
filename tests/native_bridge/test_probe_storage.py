"""Reads past the page cache, and what becomes of their times."""

from __future__ import annotations

import errno
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from flashmoe_sim.geometry import named_model
from flashmoe_sim.io.errors import OutOfRange, Unusable
from native_bridge.probe import own_reads, storage
from native_bridge.probe.own_reads import (
    OpenFile,
    bytes_in_threads,
    cached_share,
    open_cached,
    open_past_cache,
    read_for,
)
from native_bridge.probe.storage import _request_us, measure_storage, sizes_of, sizes_of_expert

MIB = 1 << 20


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "reads"
    path.write_bytes(np.random.default_rng(1).bytes(2 * MIB))
    with path.open("rb+") as stream:
        os.fsync(stream.fileno())
    return path


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that refuses direct reads."""
    opens = os.open

    def without_direct(path: Path, flags: int) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return opens(path, flags)

    monkeypatch.setattr(own_reads.os, "open", without_direct)


def test_every_place_is_read_once_before_any_twice(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places: list[int] = []
    preadv = os.preadv

    def noted(descriptor: int, buffers: list[object], place: int) -> int:
        places.append(place)
        return preadv(descriptor, buffers, place)  # type: ignore[arg-type]

    with open_cached(file) as reading:
        monkeypatch.setattr(own_reads.os, "preadv", noted)
        until = time.monotonic() + 0.1
        done, _ = read_for(reading, size_bytes=64 << 10, depth=3, until=until, seed=7, dropped=False)
    assert time.monotonic() >= until
    assert done == len(places) * (64 << 10)
    times_read = Counter(places)
    assert set(times_read) == set(range(0, 2 * MIB, 64 << 10))
    assert max(times_read.values()) - min(times_read.values()) <= 1


def test_where_direct_reads_are_refused_pages_are_dropped_and_read_once(file: Path, refused: None) -> None:
    with open_past_cache(file) as reading:
        assert reading.access == "buffered"
        done, seconds = read_for(reading, size_bytes=64 << 10, depth=2, until=time.monotonic() + 60, seed=1)
    assert done == 2 * MIB
    assert seconds < 30


def test_a_thread_reads_at_least_once(file: Path) -> None:
    with open_past_cache(file) as reading:
        done, _ = read_for(reading, size_bytes=64 << 10, depth=4, until=time.monotonic() - 1, seed=1)
    assert done == 4 * (64 << 10)


def test_reads_that_fail(file: Path) -> None:
    with open_cached(file) as reading, pytest.raises(Unusable, match="cannot be read"):
        read_for(OpenFile(reading.descriptor + 900, "direct", 2 * MIB), size_bytes=4096, depth=2, until=0, seed=1)


def test_what_a_thread_raises_ends_the_others() -> None:
    def work(thread: int) -> Iterator[int]:
        while True:
            if thread == 1:
                raise ValueError("second")
            time.sleep(0.001)
            yield 1

    started = time.monotonic()
    with pytest.raises(ValueError, match="second"):
        bytes_in_threads(work, 3, until=started + 60)
    assert time.monotonic() - started < 30


def test_the_page_cache_is_recognised(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock of its own, on which a read takes 1 us, and a device 2 ms for every other page."""
    now, preadv = 0.0, os.preadv

    def read(descriptor: int, buffers: list[object], place: int) -> int:
        nonlocal now
        now += 0.002 if descriptor == slow and place % (2 * 4096) else 1e-6
        return preadv(descriptor, buffers, place)  # type: ignore[arg-type]

    clock = SimpleNamespace(monotonic=time.monotonic, perf_counter=lambda: now)
    monkeypatch.setattr(own_reads, "time", clock)
    monkeypatch.setattr(own_reads.os, "preadv", read)
    with open_cached(file) as cached:
        slow = os.dup(cached.descriptor)
        warm = OpenFile(cached.descriptor, "direct", 2 * MIB)  # says direct, and is not
        assert cached_share(warm, cached, until=time.monotonic() + 30) == 1.0
        mixed = cached_share(OpenFile(slow, "direct", 2 * MIB), cached, until=time.monotonic() + 30)
        os.close(slow)
        assert 0.2 < mixed < 0.7
        assert cached_share(warm, cached, until=0) is None


def test_a_file_in_memory_is_said_to_be_that(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "cached_share", lambda *_, **__: 0.9)
    found = measure_storage(file, [4096], fio=None, until=time.monotonic() + 0.5, tell=str)
    assert found.is_page_cache
    assert found.condition.endswith("evidently the page cache or memory, not a device")
    assert any("storage was evidently the page cache or memory" in note for note in found.notes)


def test_rounds_go_over_every_point_before_the_next(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[tuple[int, int]] = []

    def fake(*_: object, size_bytes: int, depth: int, **__: object) -> tuple[int, float]:
        order.append((size_bytes, depth))
        return size_bytes * depth * len(order), 1e-3

    monkeypatch.setattr(storage, "read_for", fake)
    found = measure_storage(file, [4096, 8192], fio=None, until=time.monotonic() + 5, tell=str)
    rounds = [order[start : start + 8] for start in range(0, 40, 8)]
    assert len(order) == 40
    assert all(sorted(one) == sorted(rounds[0]) for one in rounds)
    assert len({tuple(one) for one in rounds}) > 1
    point = found.points[0]
    rates = sorted(4096 * (number + 1) / 1e-3 / 1e9 for number, one in enumerate(order) if one == (4096, 1))
    assert (point.size_bytes, point.depth, point.gb_s.rounds) == (4096, 1, 5)
    assert point.gb_s.value == pytest.approx(rates[2])
    assert (point.gb_s.lo, point.gb_s.hi) == pytest.approx((rates[0], rates[4]))
    assert found.how == "own reads in threads"


def test_what_was_not_reached_in_time_is_said(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*_: object, size_bytes: int, **__: object) -> tuple[int, float]:
        time.sleep(0.1)
        return size_bytes, 0.1

    monkeypatch.setattr(storage, "read_for", slow)
    monkeypatch.setattr(storage, "cached_share", lambda *_, **__: 0.0)
    found = measure_storage(file, [4096, 8192], fio=None, until=time.monotonic() + 0.5, tell=str)
    assert 1 <= len(found.points) < 8
    assert any("sizes and depths were not reached in time" in note for note in found.notes)
    assert any("of 5 rounds" in note for note in found.notes)
    with pytest.raises(OutOfRange, match="no read ended in time; give more --seconds"):
        measure_storage(file, [4096], fio=None, until=0, tell=str)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads that end at once, whatever else the drive does."""
    monkeypatch.setattr(storage, "cached_share", lambda *_, **__: 0.0)
    monkeypatch.setattr(storage, "read_for", lambda *_, **__: (4096, 0.001))


def test_fio_is_left_out_where_it_would_measure_the_cache(file: Path, refused: None, at_once: None) -> None:
    found = measure_storage(file, [4096], fio="3.33", until=time.monotonic() + 1, tell=str)
    assert found.how == "own reads in threads"
    assert "refuses direct reads" in found.notes[0]
    assert found.access == "buffered"


def test_fio_is_not_started_where_there_is_too_little_time(file: Path, at_once: None) -> None:
    found = measure_storage(file, [4096], fio="3.33", until=time.monotonic() + 1, tell=str)
    assert found.how == "own reads in threads"
    assert "third of a second" in found.notes[0]


def test_what_a_request_costs() -> None:
    """64 KiB at 0.5 GB/s take 131.072 us, at the best rate of the round, 2 GB/s, 32.768; then 65.536 less 16.384."""
    rates = {(65536, 1): [0.5, 1.0], (65536, 4): [0.8, 1.0], (1 << 20, 1): [2.0, 4.0]}
    found = _request_us(rates)
    assert found.value == pytest.approx((98.304 + 49.152) / 2)
    assert (found.lo, found.hi) == pytest.approx((49.152, 98.304))
    assert _request_us({(65536, 1): [2.0], (1 << 20, 1): [1.0]}).value == 0


def test_sizes_of_a_model() -> None:
    """gpt-oss-120b has families of 4.4 MB; whole, in four chunks where pages allow, and 4 MiB."""
    model = named_model("gpt-oss-120b")
    sizes = sizes_of(model)
    families = {size for layer in model.layers.values() for size in layer.family_bytes.values()}
    assert 4 * MIB in sizes
    assert all(size % 4096 == 0 for size in sizes)
    assert {-(-size // 4096) * 4096 for size in families} <= set(sizes)
    assert len(sizes) <= 6


def test_sizes_of_an_expert() -> None:
    assert sizes_of_expert(1) == (4096, 4 * MIB)
    assert sizes_of_expert(139264) == (139264, 4 * MIB)
    assert sizes_of_expert(4 * MIB) == (4 * MIB,)
    for wrong in (0, (1 << 30) + 1):
        with pytest.raises(OutOfRange, match="expected 1 B to 1 GiB"):
            sizes_of_expert(wrong)
