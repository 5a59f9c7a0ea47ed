"""The whole probe: the schedule of measurements within the given seconds and bytes."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from flashmoe_sim.io.errors import BadInput, SimError, TooLarge, Unsupported, Unusable
from flashmoe_sim.io.sizes import size
from flashmoe_sim.machines.here.by_system import MacFacts, memory_limit_bytes, parse_mac
from flashmoe_sim.machines.here.collect import cgroups
from flashmoe_sim.machines.here.read import Here
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.machine import Machine, Quantity
from flashmoe_sim.machines.table import PRESETS
from native_bridge.host import cpu_name, system_facts
from native_bridge.probe.estimate import Estimate
from native_bridge.probe.fio import fio_version
from native_bridge.probe.gpu_copies import Gpu, LinkFound, measure_link, open_gpu
from native_bridge.probe.memory import MemoryFound, measure_memory
from native_bridge.probe.scratch import file_bytes, leftovers, scratch, write_file
from native_bridge.probe.storage import DEPTHS, StorageFound, Tell, measure_faults, measure_storage
from native_bridge.process import ask

TIMEOUT_S = 20.0
SYSCTL = ("machdep.cpu.brand_string", "iogpu.wired_limit_mb")
PROFILER = ("system_profiler", "-json", "SPHardwareDataType", "SPDisplaysDataType")


@dataclass(frozen=True)
class Facts:
    """cores: available to this process. ram_bytes: available to it, of which available_bytes are free now.

    ram_limited: a control group limits it to less than the machine has. device: with its model if known.
    physical_cores: of those available; 0 if unknown, as on a Mac, whose cores are unlike. read_ahead_kib: of the
    device; 0 if unknown.
    """

    processor: str
    cores: int
    ram_bytes: int
    ram_limited: bool
    available_bytes: int
    system: str
    file_system: str
    device: str
    physical_cores: int = 0
    read_ahead_kib: int = 0

    @property
    def where(self) -> str:
        """The file system and its device, for conditions."""
        return f"{self.file_system} on {self.device}" if self.device != self.file_system else self.file_system


def machine_facts(folder: Path) -> Facts:
    """Ask the system about itself and the disk that `folder` is on."""
    memory = system_facts().virtual_memory()
    allowed = memory_limit_bytes(cgroups())
    limit = memory.total if allowed is None else allowed
    file_system, device = _mounted(folder)
    linux, model = sys.platform == "linux", _of_device(device, "device/model")
    read_ahead = _of_device(device, "queue/read_ahead_kb")
    cores = len(os.sched_getaffinity(0)) if linux else os.cpu_count() or 1
    return Facts(
        processor=cpu_name(),
        cores=cores,
        ram_bytes=min(memory.total, limit),
        ram_limited=limit < memory.total,
        available_bytes=min(memory.available, limit),
        system=_system(),
        file_system=file_system,
        device=f"{device} ({model})" if model else device,
        physical_cores=min(system_facts().cpu_count(logical=False) or 0, cores) if linux else 0,
        read_ahead_kib=int(read_ahead) if read_ahead.isdecimal() else 0,
    )


def _system() -> str:
    if sys.platform == "darwin":
        return f"macOS {platform.mac_ver()[0]}"
    return f"{platform.system()} {platform.release()}"


def _mounted(folder: Path) -> tuple[str, str]:
    """The type and the device of the file system that a folder is on."""
    path = folder.resolve()
    mounted = [part for part in system_facts().disk_partitions(all=True) if path.is_relative_to(part.mountpoint)]
    if not mounted:
        return "unknown file system", "unknown device"
    part = sorted(mounted, key=lambda part: len(part.mountpoint))[-1]  # of two at one place, the later hides the other
    return part.fstype, part.device


def _of_device(device: str, setting: str) -> str:
    """What Linux says of a block device in a file such as `device/model`; empty if it says nothing."""
    name = Path(device).resolve().name
    for folder in (Path("/sys/class/block") / name, (Path("/sys/class/block") / name).resolve().parent):
        with suppress(OSError):
            return (folder / setting).read_text().strip()
    return ""


def mac_facts() -> MacFacts:
    """Ask this Mac."""
    return parse_mac(_answer(("sysctl", *SYSCTL)), _answer(PROFILER))


def _answer(question: tuple[str, ...]) -> str:
    with suppress(BadInput):
        return ask(question, timeout_s=TIMEOUT_S).stdout
    return ""


def known_bandwidth(facts: MacFacts) -> tuple[str, Quantity] | None:
    """The preset of the same chip with as many GPU cores, and its memory's bandwidth; None if there is none."""
    if facts.gpu_cores is None:
        return None
    for name in PRESETS:
        machine = load_machine(name)
        if machine.title.startswith(f"{facts.chip} ({facts.gpu_cores}-core GPU)") and machine.memory is not None:
            return name, machine.memory.bandwidth_gb_s
    return None


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
