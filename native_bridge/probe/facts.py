"""Facts about this machine from the system: processor, memory, system, file system, device; and of a Mac its GPU."""

from __future__ import annotations

import os
import platform
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.machines.here.by_system import MacFacts, memory_limit_bytes, parse_mac
from flashmoe_sim.machines.here.collect import cgroups
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.machine import Quantity
from flashmoe_sim.machines.table import PRESETS
from native_bridge.host import cpu_name, system_facts
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
