"""This machine: memory, disk, processor, temperature, and oddities."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import sys
from pathlib import Path
from typing import Any

from flashmoe_sim.io.errors import BadInput, Missing, TooLarge
from flashmoe_sim.io.files import unreadable
from flashmoe_sim.io.sizes import MIB
from native_bridge.process import ask

AMX_ADVICE = "build llama.cpp and llama-cpp-python without native code generation (-DGGML_NATIVE=OFF)"
INSTALL = "pip install '.[bridge]'"
SPARE_BYTES = 64 * MIB  # left on a disk that is written to
_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA = 158, 0x1023, 18


def system_facts() -> Any:
    """The package psutil. Raises BadInput with the command that installs it."""
    try:
        import psutil
    except ImportError:
        raise Missing(f"what runs or measures this machine needs the package psutil: {INSTALL}") from None
    return psutil


def physical_cores() -> int:
    """Physical cores: the default number of threads."""
    return int(system_facts().cpu_count(logical=False) or 1)


def core_mask(threads: int) -> str:
    """CPUs that so many threads should have for themselves, as a hexadecimal mask: one of each core, or all of them.

    Empty if they are not known: only Linux says which may be used.
    """
    if sys.platform != "linux":
        return ""
    cpus, cores = sorted(os.sched_getaffinity(0)), dict[str, int]()
    for cpu in cpus:
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        cores.setdefault(next(iter(_lines(siblings)), str(cpu)), cpu)
    used = cores.values() if threads <= len(cores) else cpus
    return f"{sum(1 << cpu for cpu in used):#x}"


def machine_name() -> str:
    """Processor, cores and memory in a line: identifies a machine in a run.json."""
    psutil = system_facts()
    cores = psutil.cpu_count(logical=True) or 1
    return f"{cpu_name()}, {cores} cores, {psutil.virtual_memory().total / 2**30:.0f} GiB, {platform.system()}"


def cpu_name() -> str:
    """The processor as the system names it."""
    if sys.platform == "linux":
        for line in _lines(Path("/proc/cpuinfo")):
            key, _, value = line.partition(":")
            if key.strip() == "model name" and value.strip():
                return value.strip()
    elif sys.platform == "darwin":
        if name := _asked(["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]).strip():
            return name
    return platform.processor() or platform.machine()


def free_ram_bytes() -> int:
    """Memory available to programs without swapping."""
    return int(system_facts().virtual_memory().available)


def free_disk_bytes(folder: Path) -> int:
    """Free bytes where this folder is, or will be. Raises BadInput if no parent of it can be reached."""
    place = folder.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        return shutil.disk_usage(place).free
    except OSError as error:
        raise unreadable(place, error) from None


def require_room(folder: Path, needed_bytes: int) -> None:
    """Raise BadInput if the disk of a folder, which need not exist yet, lacks room for that much and a margin."""
    free = free_disk_bytes(folder)
    if free < needed_bytes + SPARE_BYTES:
        raise TooLarge(
            f"{folder}: {needed_bytes / MIB:,.0f} MiB to write and {SPARE_BYTES / MIB:,.0f} MiB to spare are needed, "
            f"but {free / MIB:,.0f} MiB are free there; make room, or give a folder on another disk"
        )


def temperature_c() -> dict[str, float]:
    """Highest temperature of CPU and GPU, in degrees Celsius, if the system reports it."""
    psutil, found = system_facts(), {}
    sensors = psutil.sensors_temperatures() if hasattr(psutil, "sensors_temperatures") else {}
    cpu = [
        reading.current
        for name, readings in sensors.items()
        if name in ("coretemp", "k10temp", "zenpower", "cpu_thermal")
        for reading in readings
    ]
    if cpu:
        found["cpu"] = float(max(cpu))
    if nvidia := shutil.which("nvidia-smi"):
        query = [nvidia, "--query-gpu=temperature.gpu", "--format=csv,noheader,nounits"]
        gpu = [float(word) for word in _asked(query).split() if word.isdigit()]
        if gpu:
            found["gpu"] = max(gpu)
    return found


def amx_trap() -> bool:
    """Whether the processor announces AMX but the system does not grant it, as in some virtual machines.

    A program built for this very machine then dies of an illegal instruction. Source: the Linux kernel's
    Documentation/arch/x86/xstate.rst: AMX has to be requested with arch_prctl(ARCH_REQ_XCOMP_PERM).
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    announced = any("amx_tile" in line.split() for line in _lines(Path("/proc/cpuinfo")) if line.startswith("flags"))
    return announced and not _amx_granted()


def _amx_granted() -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.syscall(_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA) == 0)


def _asked(arguments: list[str]) -> str:
    """The output of a system program; empty if it cannot be run."""
    try:
        answer = ask(arguments, timeout_s=10)
    except BadInput:
        return ""
    return answer.stdout if answer.code == 0 else ""


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return []
