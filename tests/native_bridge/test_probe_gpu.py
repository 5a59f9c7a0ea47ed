"""Copies to a CUDA device, with packages that stand in for the real ones and take exact times on a clock of theirs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from flashmoe_sim.io.errors import SimError
from native_bridge.probe import gpu_copies
from native_bridge.probe.gpu_copies import LARGE_BYTES, SMALL_BYTES, line, measure_link, open_gpu

PINNED, PAGEABLE, BESIDE_S = 25e9, 10e9, 12e-6
GIB = 2**30


class Clock:
    """Seconds that only copies spend. Copies that were begun are waited for when the stream is."""

    def __init__(self) -> None:
        self.now = 0.0
        self.begun = 0.0
        self.copies: list[tuple[int, bool]] = []

    def begin(self, size_bytes: int, pinned: bool) -> None:
        self.copies.append((size_bytes, pinned))
        self.begun += BESIDE_S + size_bytes / (PINNED if pinned else PAGEABLE)

    def wait(self, *_: object) -> None:
        self.now += self.begun
        self.begun = 0.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(gpu_copies.time, "perf_counter", lambda: made.now)
    return made


def module(name: str, **content: Any) -> ModuleType:
    made = ModuleType(name)
    made.__spec__ = ModuleSpec(name, None)
    for key, value in content.items():
        setattr(made, key, value)
    return made


def cupy(clock: Clock, *, integrated: int = 0, fails: str = "") -> ModuleType:
    """As much of cupy as is used: arrays know whether they stand in memory that alloc_pinned_memory gave."""
    pinned: list[bytearray] = []

    def allocate(size_bytes: int) -> bytearray:
        pinned.append(bytearray(size_bytes))
        return pinned[-1]

    class There:
        def __init__(self, size_bytes: int, dtype: type) -> None:
            assert dtype is np.uint8
            self.size_bytes = size_bytes

        def set(self, host: np.ndarray, stream: object) -> None:
            assert isinstance(stream, Stream)
            assert host.nbytes == self.size_bytes
            clock.begin(host.nbytes, any(np.shares_memory(host, np.frombuffer(held, np.uint8)) for held in pinned))

    class Stream:
        def __init__(self, non_blocking: bool) -> None:
            assert non_blocking

        def synchronize(self) -> None:
            clock.wait()

    class Device:
        mem_info = (20 * GIB, 24 * GIB)

        def __init__(self, number: int) -> None:
            if fails:
                raise RuntimeError(fails)
            assert number == 0

        def __enter__(self) -> Device:
            return self

        def __exit__(self, *_: object) -> None: ...

    properties = {"name": b"Made-up GPU", "integrated": integrated}
    runtime = SimpleNamespace(getDeviceProperties=lambda number: properties)
    cuda = SimpleNamespace(Device=Device, Stream=Stream, alloc_pinned_memory=allocate, runtime=runtime)
    return module("cupy", __version__="14.2.0", cuda=cuda, empty=There)


def torch(clock: Clock, *, available: bool = True) -> ModuleType:
    class Tensor:
        def __init__(self, size_bytes: int, pinned: bool) -> None:
            self.size_bytes, self.pinned = size_bytes, pinned

        def copy_(self, host: Tensor, non_blocking: bool) -> None:
            assert non_blocking
            assert host.size_bytes == self.size_bytes
            clock.begin(host.size_bytes, host.pinned)

    def ones(size_bytes: int, *, dtype: str, pin_memory: bool) -> Tensor:
        assert dtype == "uint8"
        return Tensor(size_bytes, pin_memory)

    def empty(size_bytes: int, *, dtype: str, device: str) -> Tensor:
        assert (dtype, device) == ("uint8", "cuda:0")
        return Tensor(size_bytes, False)

    properties = SimpleNamespace(name="Made-up GPU", is_integrated=0)
    cuda = SimpleNamespace(
        is_available=lambda: available,
        get_device_properties=lambda number: properties,
        mem_get_info=lambda number: (20 * GIB, 24 * GIB),
        synchronize=clock.wait,
    )
    return module("torch", __version__="2.9.0", cuda=cuda, ones=ones, empty=empty, uint8="uint8")


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A function that makes these modules, and no others of the table, the ones that are installed."""

    def install(*modules: ModuleType) -> None:
        names = {each.__name__ for each in modules}
        monkeypatch.setattr(gpu_copies, "find_spec", lambda name: name in names or None)
        for each in modules:
            monkeypatch.setitem(sys.modules, each.__name__, each)

    return install


@pytest.mark.parametrize("make", [cupy, torch])
def test_rates(make: Callable[[Clock], ModuleType], clock: Clock, installed: Callable[..., None]) -> None:
    installed(make(clock))
    gpu = open_gpu()
    assert (gpu.name, gpu.memory_bytes, gpu.free_bytes, gpu.integrated) == ("Made-up GPU", 24 * GIB, 20 * GIB, False)
    assert gpu.by == {"cupy": "cupy 14.2.0", "torch": "torch 2.9.0"}[make.__name__]
    found = measure_link(gpu, until=time.monotonic() + 60, tell=str)
    assert found.pinned_gb_s.value == pytest.approx(PINNED / 1e9)
    assert found.pageable_gb_s.value == pytest.approx(PAGEABLE / 1e9)
    assert found.request_us.value == pytest.approx(BESIDE_S * 1e6)
    assert found.pinned_gb_s.rounds == 5
    sizes = {(size, pinned) for size in (SMALL_BYTES, LARGE_BYTES) for pinned in (True, False)}
    assert {which: clock.copies.count(which) for which in sizes} == dict.fromkeys(sizes, 1 + 5 * gpu_copies.COPIES)


def test_no_time(clock: Clock, installed: Callable[..., None]) -> None:
    installed(torch(clock))
    assert measure_link(open_gpu(), until=time.monotonic() - 1, tell=str) is None


def test_the_second_package_where_the_first_sees_nothing(clock: Clock, installed: Callable[..., None]) -> None:
    installed(cupy(clock, fails="cudaErrorNoDevice: no CUDA-capable device is detected\nmore"), torch(clock))
    assert open_gpu().by == "torch 2.9.0"
    installed(cupy(clock, fails="cudaErrorNoDevice: no device\nmore"), torch(clock, available=False))
    says = r"^no CUDA device could be opened \(cupy: cudaErrorNoDevice: no device; torch: it sees no CUDA device\)$"
    with pytest.raises(SimError, match=says):
        open_gpu()


def test_nothing_installed_says_what_to_install(installed: Callable[..., None]) -> None:
    installed()
    with pytest.raises(SimError, match="pip install cupy-cuda13x or pip install torch"):
        open_gpu()


def test_a_gpu_that_shares_the_memory(clock: Clock, installed: Callable[..., None]) -> None:
    installed(cupy(clock, integrated=1))
    assert open_gpu().integrated


def test_the_line_through_two_copies() -> None:
    """4 MiB in 1 ms and 64 MiB in 7 ms: 60 MiB in 6 ms, and of the first 0.4 ms are its bytes."""
    rate, beside_s = line(1e-3, 7e-3)
    assert rate == pytest.approx(60 * 2**20 / 6e-3 / 1e9)
    assert beside_s == pytest.approx(0.6e-3)
    assert line(1e-3, 1e-3) == (LARGE_BYTES / 1e-3 / 1e9, 0.0)
    assert line(1e-3, 32e-3) == (LARGE_BYTES / 32e-3 / 1e9, 0.0)
