"""The whole probe: the schedule of measurements within the given seconds and bytes."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flashmoe_sim.io.errors import SimError, Unsupported, Unusable
from native_bridge.probe.facts import Facts, MacFacts, mac_facts, machine_facts
from native_bridge.probe.fio import fio_version
from native_bridge.probe.gpu_copies import Gpu, LinkFound, measure_link, open_gpu
from native_bridge.probe.memory import MemoryFound, measure_memory
from native_bridge.probe.scratch import file_bytes, leftovers, scratch, write_file
from native_bridge.probe.storage import DEPTHS, StorageFound, Tell, measure_storage

# Shares of the seconds at which each stage ends at the latest; one that ends early leaves its time to the next.
WRITTEN, LEAST_WRITTEN, STORAGE, MEMORY, LINK = 0.2, 0.5, 0.85, 0.92, 0.98


@dataclass(frozen=True)
class Probed:
    """What a probe found. gpu, link: of a CUDA device. mac: of a Mac. notes: what was not measured, and why."""

    facts: Facts
    storage: StorageFound
    memory: MemoryFound
    gpu: Gpu | None
    link: LinkFound | None
    mac: MacFacts | None
    seconds: float
    written_bytes: int
    write_gb_s: float
    notes: tuple[str, ...]


def probe(
    folder: Path,
    sizes: Sequence[int],
    *,
    seconds: float,
    most_bytes: int,
    use_fio: bool,
    use_gpu: bool | None,
    tell: Tell,
) -> Probed:
    """Measure the disk that `folder` is on, memory, and the link to a CUDA device.

    sizes: bytes of the reads. seconds: after which it ends, except that it waits for a read or write that hangs.
    most_bytes: written to `folder`, where nothing is left. use_gpu: None to use one if there is one. tell: called with
    the current work.
    Raises BadInput if the folder or the bytes are unsuitable, or with `use_gpu` if there is no device to copy to;
    SimError if fio fails.
    """
    if sys.platform not in ("linux", "darwin"):
        raise Unsupported(f"a probe reads past the page cache as Linux and macOS do; this is {sys.platform}")
    started = time.monotonic()
    notes = [
        f"{left}: from a probe that was killed, or that runs now; remove it if none does"
        for left in (leftovers(folder) if folder.is_dir() else ())
    ]
    with scratch(folder) as place:
        facts = machine_facts(folder)
        mac = mac_facts() if sys.platform == "darwin" else None
        gpu = _gpu(use_gpu, notes) if mac is None else None
        fio = fio_version() if use_fio else None
        if use_fio and fio is None:
            notes.append("fio is not installed; small reads with many in flight are measured as slower than they are")
        least_bytes = max(sizes) * max(DEPTHS)
        path = place / "reads"
        tell("writing")
        written_bytes, write_s = write_file(
            path,
            size_bytes=file_bytes(folder, least_bytes=least_bytes, most_bytes=most_bytes),
            least_bytes=least_bytes,
            until=started + seconds * WRITTEN,
            latest=started + seconds * LEAST_WRITTEN,
            tell=tell,
        )
        storage = measure_storage(path, sizes, fio=fio, until=started + seconds * STORAGE, tell=tell)
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
        memory,
        gpu,
        link,
        mac,
        time.monotonic() - started,
        written_bytes,
        write_s / 1e9,
        (*notes, *storage.notes, *_missing(memory)),
    )


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
