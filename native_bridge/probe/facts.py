"""Facts about this machine from the system: processor, memory, system, file system, device."""

from __future__ import annotations

import os
import platform
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from native_bridge.host import cpu_name, system_facts

CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


@dataclass(frozen=True)
class Facts:
    """cores: available to this process. ram_bytes: available to it, of which available_bytes are free now.

    ram_limited: a control group limits it to less than the machine has. device: with its model if known.
    physical_cores: of those available; 0 if unknown, as on a Mac, whose cores are unlike.
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

    @property
    def where(self) -> str:
        """The file system and its device, for conditions."""
        return f"{self.file_system} on {self.device}" if self.device != self.file_system else self.file_system


def machine_facts(folder: Path) -> Facts:
    """Ask the system about itself and the disk that `folder` is on."""
    memory = system_facts().virtual_memory()
    limit = min((found for path in CGROUP_LIMITS if (found := _number(path)) is not None), default=memory.total)
    file_system, device = _mounted(folder)
    linux = sys.platform == "linux"
    cores = len(os.sched_getaffinity(0)) if linux else os.cpu_count() or 1
    return Facts(
        processor=cpu_name(),
        cores=cores,
        ram_bytes=min(memory.total, limit),
        ram_limited=limit < memory.total,
        available_bytes=min(memory.available, limit),
        system=_system(),
        file_system=file_system,
        device=device,
        physical_cores=min(system_facts().cpu_count(logical=False) or 0, cores) if linux else 0,
    )


def _number(path: Path) -> int | None:
    with suppress(OSError, ValueError):
        return int(path.read_text())
    return None


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
    return part.fstype, f"{part.device}{_model(part.device)}"


def _model(device: str) -> str:
    """The model of a Linux block device, in brackets; empty if unknown."""
    name = Path(device).resolve().name
    for folder in (Path("/sys/class/block") / name, (Path("/sys/class/block") / name).resolve().parent):
        with suppress(OSError):
            return f" ({(folder / 'device' / 'model').read_text().strip()})"
    return ""
