"""Asking this computer about itself: files, and programs that have LIMIT_S seconds, all at once; no network."""

from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from flashmoe_sim.machines.here.read import Here, this_machine
from flashmoe_sim.machines.here.texts import Seen, Told

LIMIT_S = 1.3  # so that all is said within two seconds of the start
MOST_BYTES = 1 << 20
FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin", "/usr/lib/wsl/lib", "/opt/rocm/bin")
NVIDIA_FIELDS = "name,memory.total,memory.free,pcie.link.gen.max,pcie.link.width.current,pcie.link.width.max"
_NVIDIA = {
    "nvidia-smi": ["nvidia-smi", f"--query-gpu={NVIDIA_FIELDS}", "--format=csv,noheader,nounits"],
    "nvidia-smi -L": ["nvidia-smi", "-L"],
}
LINUX = {
    **_NVIDIA,
    "lspci": ["lspci", "-nn"],
    "rocm-smi": ["rocm-smi", "--showproductname", "--showmeminfo", "vram", "--csv"],
    "dmidecode": ["dmidecode", "-t", "memory"],
}
MACOS = {
    "sysctl": ["sysctl", "hw.memsize", "hw.physicalcpu", "machdep.cpu.brand_string", "iogpu.wired_limit_mb"],
    "system_profiler": ["system_profiler", "-json", "SPHardwareDataType", "SPDisplaysDataType"],
    "ioreg": ["ioreg", "-r", "-d", "1", "-c", "AGXAccelerator"],
    "vm_stat": ["vm_stat"],
}
_DISK = "Get-Partition -DriveLetter $env:SystemDrive[0] | Get-Disk | Get-PhysicalDisk | Select-Object FriendlyName,"
WINDOWS = {
    **_NVIDIA,
    "disk": ["powershell", "-NoProfile", "-NonInteractive", "-Command", f"{_DISK} BusType, MediaType | ConvertTo-Json"],
}
FILES = (
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/version",
    "/proc/device-tree/model",
    "/etc/os-release",
    "/sys/class/dmi/id/product_name",
    "/sys/class/dmi/id/sys_vendor",
    "/run/udev/data/+dmi:id",
)
IN_CONTAINERS = ("/.dockerenv", "/run/.containerenv")
CGROUP_FILES = ("memory.max", "memory.high", "memory.current", "cpu.max")
OLD_CGROUP_FILES = {
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    "cpu": ("cpu.cfs_quota_us", "cpu.cfs_period_us"),
}


@cache
def here() -> Here:
    """The machine that this process runs on, asked once."""
    return this_machine(look())


def look() -> Seen:
    """What this computer says of itself, within two seconds."""
    if sys.platform == "darwin":
        found = ask_all(MACOS)
        found["macos"] = Told(platform.mac_ver()[0])
    elif sys.platform == "win32":
        from flashmoe_sim.machines.here import windows

        found = ask_all(WINDOWS)
        found |= windows.look()
    else:
        commands = dict(LINUX)
        if getattr(os, "geteuid", int)() != 0:  # it reads what root alone may
            del commands["dmidecode"]
        found = ask_all(commands) | look_at_linux()
    found["system"] = Told(f"{platform.system()} {platform.machine()}")
    return found


def ask_all(commands: dict[str, Sequence[str]] | dict[str, list[str]]) -> dict[str, Told]:
    """The answers of programs, asked at the same time; without those that are not there.

    One that does not end in time is ended, and one that cannot even be ended is left behind.
    """
    found: dict[str, Told] = {}
    asked = []
    for name, command in commands.items():
        if (program := _program(command[0])) is not None:
            found[name] = Told(problem=f"no answer within {LIMIT_S:g} s")
            thread = threading.Thread(target=_ask, args=(found, name, [program, *command[1:]]), daemon=True)
            thread.start()
            asked.append(thread)
    until = time.monotonic() + LIMIT_S + 0.2
    for thread in asked:
        thread.join(max(0.0, until - time.monotonic()))
    return dict(found)


def _ask(found: dict[str, Told], name: str, command: Sequence[str]) -> None:
    environment = {**os.environ, "LC_ALL": "C", "LANG": "C"}
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        found[name] = Told(problem=f"cannot be started ({error.strerror or error})")
        return
    late = threading.Event()

    def end() -> None:
        late.set()
        _kill(child)

    timer = threading.Timer(LIMIT_S, end)
    timer.daemon = True
    timer.start()
    with child:
        assert child.stdout is not None
        text = child.stdout.read(MOST_BYTES)
        if len(text) == MOST_BYTES:
            _kill(child)
    timer.cancel()
    if not late.is_set():
        found[name] = Told(text.decode("utf-8", "replace"), child.returncode)


def _kill(child: subprocess.Popen[bytes]) -> None:
    """End a program, and what it started, which may hold its output open."""
    if sys.platform == "win32":
        child.kill()
        return
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)


def _program(name: str) -> str | None:
    """Where a program is: among the system's own folders first, and never in the current one."""
    if sys.platform == "win32":
        system = Path(os.environ.get("SYSTEMROOT", "C:\\Windows")) / "System32"
        places = (system / f"{name}.exe", system / "WindowsPowerShell" / "v1.0" / f"{name}.exe")
        return next((str(place) for place in places if place.is_file()), None)
    path = os.pathsep.join((*FOLDERS, *filter(os.path.isabs, os.environ.get("PATH", "").split(os.pathsep))))
    return shutil.which(name, path=path)


def look_at_linux() -> dict[str, Told]:
    """The files of Linux."""
    found = {path: Told(text) for path in FILES if (text := read(path))}
    if hasattr(os, "sched_getaffinity"):
        found["affinity"] = Told(str(len(os.sched_getaffinity(0))))
    models = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    found["/proc/driver/nvidia"] = Told("\n".join(read(path) for path in models))
    found["cgroup"] = Told(cgroups())
    found["pci"] = Told(_displays())
    found["drive"] = Told(_drive(Path.home()))
    contained = any(os.path.exists(path) for path in IN_CONTAINERS) or "container=" in read("/proc/1/environ")
    found["container"] = Told("yes" if contained else "")
    return found


def read(path: str | Path) -> str:
    """A small file's text; empty if it is not there, or may not be read."""
    with suppress(OSError), open(path, "rb") as file:
        return file.read(MOST_BYTES).decode("utf-8", "replace")
    return ""


def cgroups() -> str:
    """A line `path value` for each limit of this process's control groups and those above, of either version."""
    lines = []
    for entry in read("/proc/self/cgroup").splitlines():
        number, kinds, path = entry.split(":", 2)
        if number == "0":
            roots, names = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"], list(CGROUP_FILES)
        else:
            known = [kind for kind in kinds.split(",") if kind in OLD_CGROUP_FILES]
            roots = [f"/sys/fs/cgroup/{kind}" for kind in known]
            names = [name for kind in known for name in OLD_CGROUP_FILES[kind]]
        parts = [part for part in path.split("/") if part]
        places = [Path(root, *parts[:depth]) for root in roots for depth in range(len(parts) + 1)]
        lines += [
            f"{place / name} {text}" for place in places for name in names if (text := read(place / name).strip())
        ]
    return "\n".join(lines)


def _displays() -> str:
    """A line for each display device: what the kernel knows of it, with its name if the system has AMD's list."""
    lines = []
    for folder in sorted(Path("/sys/bus/pci/devices").glob("*")):
        if not read(folder / "class").startswith("0x03"):
            continue
        says = {"address": folder.name} | {key: read(folder / key).strip() for key in ("vendor", "device", "revision")}
        says["vram"] = read(folder / "mem_info_vram_total").strip()
        if says["vendor"] == "0x1002":
            says["name"] = _amd_name(says["device"], says["revision"])
        lines.append(" ".join(f'{key}="{value}"' for key, value in says.items() if value))
    return "\n".join(lines)


def _amd_name(device: str, revision: str) -> str:
    """The marketing name in libdrm's table, `744C,	C8,	AMD Radeon RX 7900 XTX`."""
    wanted = device.removeprefix("0x").upper(), revision.removeprefix("0x").upper()
    for line in read("/usr/share/libdrm/amdgpu.ids").splitlines():
        row = [word.strip() for word in line.split(",", 2)]
        if len(row) == 3 and (row[0].upper(), row[1].upper().zfill(2)) == wanted:
            return row[2]
    return ""


def _drive(folder: Path) -> str:
    """The block device of a folder: its model, bus, link and whether it turns; or what else the folder is on."""
    block, kind, source = _block_device(folder)
    if block is None:
        return f'on="{kind or source or "an unknown file system"}"'
    real = str(block.resolve())
    bus = next((bus for bus in ("nvme", "usb", "ata", "mmc", "virtio", "nbd", "iscsi") if f"/{bus}" in real), "")
    bus = {"ata": "sata", "virtio": "virtual", "nbd": "network", "iscsi": "network"}.get(bus, bus)
    model = read(block / "device" / "model").strip()
    if any(
        word in f"{model} {read(block / 'device' / 'vendor')}".lower() for word in ("qemu", "vmware", "virtual", "msft")
    ):
        bus = "virtual"
    link = read(block / "device" / "device" / "current_link_speed").strip()
    turns = read(block / "queue" / "rotational").strip()
    said = {"model": model, "bus": bus or ("virtual" if block.name.startswith(("vd", "xvd")) else ""), "link": link}
    return " ".join(f'{key}="{value}"' for key, value in {**said, "rotational": turns}.items() if value)


def _block_device(folder: Path) -> tuple[Path | None, str, str]:
    """The whole disk below a folder; else None, with its file system and where that is from."""
    try:
        number = folder.stat().st_dev
    except OSError:
        return None, "", ""
    block = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    kind = source = ""
    if not block.exists():  # file systems of several devices have numbers of their own
        kind, source = _mounted(folder)
        name = Path(source).resolve().name if source.startswith("/dev/") else ""
        block = Path("/sys/class/block") / name
        if not name or not block.exists():
            return None, kind, source
    for _ in range(8):
        block = block.resolve()
        if below := sorted((block / "slaves").glob("*")):  # what is encrypted or of several volumes
            block = below[0]
        elif (block / "partition").exists():
            block = block.parent
        else:
            break
    return block, kind, source


def _mounted(folder: Path) -> tuple[str, str]:
    """The kind and the device of the file system that a folder is on."""
    found = ("", "", "")
    for line in read("/proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        place, kinds = before.split()[4], after.split()
        if len(kinds) > 1 and folder.resolve().is_relative_to(place) and len(place) >= len(found[0]):
            found = (place, kinds[0], kinds[1])
    return found[1], found[2]
