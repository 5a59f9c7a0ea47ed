"""The rate of copies from RAM to a CUDA device, pinned and pageable, with whichever package is installed."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from flashmoe_sim.io.errors import SimError
from native_bridge.probe.estimate import ROUNDS, Estimate, estimate

SMALL_BYTES, LARGE_BYTES = 4 << 20, 64 << 20
COPIES = 8
Copy = Callable[[], object]


@dataclass(frozen=True)
class Gpu:
    """A device. copier: from bytes and whether they are pinned to a function that copies once and waits for it.

    integrated: it shares the RAM. by: the package and its version.
    """

    name: str
    memory_bytes: int
    free_bytes: int
    integrated: bool
    by: str
    copier: Callable[[int, bool], Copy]


@dataclass(frozen=True)
class Package:
    """A package that copies: what to import and to install, and how it opens the first device."""

    module: str
    install: str
    opens: Callable[[Any], Gpu]


@dataclass(frozen=True)
class LinkFound:
    """Copy rates in GB/s, and the fixed cost of a pinned copy."""

    pinned_gb_s: Estimate
    pageable_gb_s: Estimate
    request_us: Estimate


def _cupy(cupy: Any) -> Gpu:
    with cupy.cuda.Device(0) as device:
        properties = cupy.cuda.runtime.getDeviceProperties(0)
        free_bytes, memory_bytes = device.mem_info

    def copier(size_bytes: int, pinned: bool) -> Copy:
        import numpy as np

        stream = cupy.cuda.Stream(non_blocking=True)
        if pinned:
            held = cupy.cuda.alloc_pinned_memory(size_bytes)
            host = np.frombuffer(held, np.uint8, size_bytes)
        else:
            host = np.empty(size_bytes, np.uint8)
        host[:] = 1
        there = cupy.empty(size_bytes, np.uint8)

        def copy() -> None:
            there.set(host, stream=stream)
            stream.synchronize()

        return copy

    name = properties["name"].decode()
    return Gpu(name, memory_bytes, free_bytes, bool(properties["integrated"]), f"cupy {cupy.__version__}", copier)


def _torch(torch: Any) -> Gpu:
    if not torch.cuda.is_available():
        raise RuntimeError("it sees no CUDA device")
    properties = torch.cuda.get_device_properties(0)
    free_bytes, memory_bytes = torch.cuda.mem_get_info(0)

    def copier(size_bytes: int, pinned: bool) -> Copy:
        host = torch.ones(size_bytes, dtype=torch.uint8, pin_memory=pinned)
        there = torch.empty(size_bytes, dtype=torch.uint8, device="cuda:0")

        def copy() -> None:
            there.copy_(host, non_blocking=True)
            torch.cuda.synchronize(0)

        return copy

    integrated = bool(properties.is_integrated)
    return Gpu(properties.name, memory_bytes, free_bytes, integrated, f"torch {torch.__version__}", copier)


PACKAGES = {
    "cupy": Package("cupy", "pip install cupy-cuda13x", _cupy),
    "torch": Package("torch", "pip install torch", _torch),
}


def open_gpu() -> Gpu:
    """The first CUDA device, by the first package that is installed and sees one.

    Raises SimError, saying what to install or what failed, if there is none.
    """
    failures = []
    for package in PACKAGES.values():
        if find_spec(package.module) is None:
            continue
        try:
            return package.opens(importlib.import_module(package.module))
        except Exception as error:  # each package has its own errors, and the driver's
            failures.append(f"{package.module}: {str(error).splitlines()[0] if str(error) else type(error).__name__}")
    if failures:
        raise SimError(f"no CUDA device could be opened ({'; '.join(failures)})")
    installs = " or ".join(package.install for package in PACKAGES.values())
    raise SimError(f"no package copies to a CUDA device; where there is one: {installs}")


def measure_link(gpu: Gpu, *, until: float, tell: Callable[[str], None]) -> LinkFound | None:
    """Copies of 4 and 64 MiB, pinned and pageable, in five interleaved rounds; None if there was no time for one.

    The rate follows from the difference between the two sizes, and the fixed cost of a copy is the rest of the smaller
    one. until: the deadline, on time.monotonic.
    """
    tell("copies to the GPU")
    copies = {
        (size_bytes, pinned): gpu.copier(size_bytes, pinned)
        for size_bytes in (SMALL_BYTES, LARGE_BYTES)
        for pinned in (True, False)
    }
    for copy in copies.values():
        copy()  # the first one sets up
    pinned_gb_s, pageable_gb_s, request_us = [], [], []
    for _ in range(ROUNDS):
        if time.monotonic() >= until:
            break
        taken = {which: _seconds(copy) for which, copy in copies.items()}
        rate, beside_s = line(taken[SMALL_BYTES, True], taken[LARGE_BYTES, True])
        pinned_gb_s.append(rate)
        request_us.append(beside_s * 1e6)
        pageable_gb_s.append(line(taken[SMALL_BYTES, False], taken[LARGE_BYTES, False])[0])
    if not pinned_gb_s:
        return None
    return LinkFound(estimate(pinned_gb_s), estimate(pageable_gb_s), estimate(request_us))


def line(small_s: float, large_s: float) -> tuple[float, float]:
    """GB/s and the fixed seconds of a copy, from the times of a small and a large one.

    If the large one took no longer for its size than the small one, its own rate, and no fixed cost.
    """
    per_byte = (large_s - small_s) / (LARGE_BYTES - SMALL_BYTES)
    beside_s = small_s - SMALL_BYTES * per_byte
    if per_byte <= 0 or beside_s < 0:
        return LARGE_BYTES / large_s / 1e9, 0.0
    return 1 / per_byte / 1e9, beside_s


def _seconds(copy: Copy) -> float:
    """The seconds of one copy: the quickest of several, undisturbed by anything else."""
    times = []
    for _ in range(COPIES):
        started = time.perf_counter()
        copy()
        times.append(time.perf_counter() - started)
    return min(times)
