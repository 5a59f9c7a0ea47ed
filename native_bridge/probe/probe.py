"""The whole probe: the schedule of measurements within the given seconds and bytes."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from flashmoe_sim.io.errors import SimError, TooLarge, Unsupported, Unusable
from flashmoe_sim.io.sizes import size
from flashmoe_sim.machines.here.by_system import MacFacts
from flashmoe_sim.machines.here.read import Here
from flashmoe_sim.machines.machine import Machine
from native_bridge.probe.estimate import Estimate
from native_bridge.probe.facts import Facts, mac_facts, machine_facts
from native_bridge.probe.fio import fio_version
from native_bridge.probe.gpu_copies import Gpu, LinkFound, measure_link, open_gpu
from native_bridge.probe.memory import MemoryFound, measure_memory
from native_bridge.probe.scratch import file_bytes, leftovers, scratch, write_file
from native_bridge.probe.storage import DEPTHS, StorageFound, Tell, measure_faults, measure_storage

# Shares of the seconds at which each stage ends at the latest; one that ends early leaves its time to the next.
WRITTEN, LEAST_WRITTEN, STORAGE, FAULTS, MEMORY, LINK = 0.2, 0.5, 0.75, 0.85, 0.92, 0.98


@dataclass(frozen=True)
class Probed:
    """What a probe found. gpu, link: of a CUDA device. mac: of a Mac. notes: what was not measured, and why.

    faults_gb_s: reads by page faults of a mapped file; None if they were not measured. written_bytes: of the file that
    was read; 0 for the user's own.
    """

    facts: Facts
    storage: StorageFound
    faults_gb_s: Estimate | None
    memory: MemoryFound
    gpu: Gpu | None
    link: LinkFound | None
    mac: MacFacts | None
    seconds: float
    written_bytes: int
    write_gb_s: float
    notes: tuple[str, ...]


@dataclass(frozen=True)
class ToRead:
    """A file to read, how much of it was written for that, and at which GB/s."""

    path: Path
    written_bytes: int = 0
    write_gb_s: float = 0.0


def probe(
    place: Path,
    sizes: Sequence[int],
    *,
    seconds: float,
    most_bytes: int,
    use_fio: bool,
    use_gpu: bool | None,
    tell: Tell,
) -> Probed:
    """Measure the disk that `place` is on, memory, and the link to a CUDA device.

    place: a folder to write a file in, where nothing is left, or a file to read, which stays as it is. sizes: bytes of
    the reads.
    seconds: after which it ends, except that it waits for a read or write that hangs. most_bytes: written to the
    folder. use_gpu: None to use one if there is one. tell: called with the current work.
    Raises BadInput if the folder, the file or the bytes are unsuitable, or with `use_gpu` if there is no device to copy
    to; SimError if fio fails.
    """
    if sys.platform not in ("linux", "darwin"):
        raise Unsupported(f"a probe reads past the page cache as Linux and macOS do; this is {sys.platform}")
    started = time.monotonic()
    folder = place.parent if place.is_file() else place
    notes = [
        f"{left}: from a probe that was killed, or that runs now; remove it if none does"
        for left in (leftovers(folder) if folder.is_dir() else ())
    ]
    least_bytes = max(sizes) * max(DEPTHS)

    def written(inside: Path) -> ToRead:
        path = inside / "reads"
        tell("writing")
        written_bytes, write_s = write_file(
            path,
            size_bytes=file_bytes(folder, least_bytes=least_bytes, most_bytes=most_bytes),
            least_bytes=least_bytes,
            until=started + seconds * WRITTEN,
            latest=started + seconds * LEAST_WRITTEN,
            tell=tell,
        )
        return ToRead(path, written_bytes, write_s / 1e9)

    with nullcontext(place) if place.is_file() else scratch(folder) as inside:
        facts = machine_facts(folder)
        mac = mac_facts() if sys.platform == "darwin" else None
        gpu = _gpu(use_gpu, notes) if mac is None else None
        fio = fio_version() if use_fio else None
        if use_fio and fio is None:
            notes.append("fio is not installed; small reads with many in flight are measured as slower than they are")
        reading = _own(place, least_bytes) if place.is_file() else written(inside)
        path = reading.path
        storage = measure_storage(path, sizes, fio=fio, until=started + seconds * STORAGE, tell=tell)
        tell("page faults")
        faults = measure_faults(path, sizes, threads=facts.cores, until=started + seconds * FAULTS)
        memory = measure_memory(
            path,
            threads=facts.cores,
            available_bytes=facts.available_bytes,
            until=started + seconds * (LINK if gpu is None else MEMORY),
            tell=tell,
        )
    link = None
    if gpu is not None and not gpu.integrated:
        try:
            link = measure_link(gpu, until=started + seconds * LINK, tell=tell)
        except Exception as error:  # the package's own errors: out of memory, a driver of another version
            notes.append(f"[link] left out: {gpu.by}: {error}")
    return Probed(
        facts,
        storage,
        faults,
        memory,
        gpu,
        link,
        mac,
        time.monotonic() - started,
        reading.written_bytes,
        reading.write_gb_s,
        (*notes, *storage.notes, *_missing(memory), *_no_faults(faults)),
    )


def _own(path: Path, least_bytes: int) -> ToRead:
    """The user's own file. Raises BadInput if it is too small, or cannot be read."""
    size_bytes = path.stat().st_size
    if size_bytes < least_bytes:
        raise TooLarge(
            f"{path}: has {size(size_bytes)}, and these reads need {size(least_bytes)}; give a larger file, or a "
            "--folder to write one in"
        )
    if not os.access(path, os.R_OK):
        raise Unusable(f"{path}: cannot be read; give a file that you may read")
    return ToRead(path)


def _gpu(use_gpu: bool | None, notes: list[str]) -> Gpu | None:
    if use_gpu is False:
        return None
    try:
        return open_gpu()
    except SimError as error:
        if use_gpu:
            raise Unusable(f"--gpu: {error}") from None
        notes.append(f"[gpu] and [link] left out: {error}")
    return None


def _missing(memory: MemoryFound) -> list[str]:
    if memory.together is None:
        return ["[memory] left out: no time was left for it; give more --seconds"]
    if memory.from_cache is None:
        return ["[memory] left out: no time was left to read from the page cache; give more --seconds"]
    return []


def _no_faults(faults: Estimate | None) -> list[str]:
    return [] if faults else ["storage.faults_gb_s left out: no time was left for page faults; give more --seconds"]


@dataclass(frozen=True)
class MeasuredHere(Here):
    """This machine, and what was measured of it."""

    measured: tuple[Probed, Machine] | None = None
