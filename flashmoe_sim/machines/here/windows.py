"""What Windows says of itself without a program: its registry, its memory, and the firmware's table of modules."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from typing import Any

from flashmoe_sim.machines.here.texts import Told

PROCESSORS = r"HARDWARE\DESCRIPTION\System\CentralProcessor\0"
ADAPTERS = r"SYSTEM\CurrentControlSet\Control\Class\{4d36e968-e325-11ce-bfc1-08002be10318}"
BIOS = r"HARDWARE\DESCRIPTION\System\BIOS"
EDITION = r"SOFTWARE\Microsoft\Windows NT\CurrentVersion"
MOST_ADAPTERS = 32
_RSMB = 0x52534D42  # the provider "RSMB" of GetSystemFirmwareTable
_HEADER_BYTES = 8  # before the table: the version, and its length
_FEATURES = {40: "avx2", 41: "avx512"}  # of IsProcessorFeaturePresent


class _Memory(ctypes.Structure):
    _fields_ = (
        ("length", ctypes.c_uint32),
        ("load", ctypes.c_uint32),
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        *((name, ctypes.c_ulonglong) for name in ("page_total", "page_free", "own_total", "own_free", "own_extended")),
    )


def look() -> dict[str, Told]:
    """`registry`: a line for each fact; `smbios`: the table in hexadecimal digits."""
    lines = []
    for part in (_processor, _memory, _adapters, _edition):
        with suppress(OSError, AttributeError, ValueError):
            lines += part()
    table = ""
    with suppress(OSError, AttributeError):
        table = _smbios().hex()
    return {"registry": Told("\n".join(lines)), "smbios": Told(table)}


def _value(folder: str, name: str) -> Any:
    import winreg

    reg: Any = winreg
    with reg.OpenKey(reg.HKEY_LOCAL_MACHINE, folder) as key:
        return reg.QueryValueEx(key, name)[0]


def _kernel() -> Any:
    return ctypes.WinDLL("kernel32", use_last_error=True)  # type: ignore[attr-defined]


def _processor() -> list[str]:
    features = [name for number, name in _FEATURES.items() if _kernel().IsProcessorFeaturePresent(number)]
    lines = [f"cpu: {_value(PROCESSORS, 'ProcessorNameString')}", f"logical: {os.cpu_count() or 0}"]
    return [*lines, f"features: {' '.join(features)}"]


def _memory() -> list[str]:
    memory = _Memory()
    memory.length = ctypes.sizeof(memory)
    if not _kernel().GlobalMemoryStatusEx(ctypes.byref(memory)):
        return []
    return [f"memory: {memory.total}", f"free: {memory.free}"]


def _adapters() -> list[str]:
    lines = []
    for number in range(MOST_ADAPTERS):
        folder = f"{ADAPTERS}\\{number:04}"
        with suppress(OSError):
            name, size = _value(folder, "DriverDesc"), 0
            with suppress(OSError, TypeError, ValueError):
                size = int(_value(folder, "HardwareInformation.qwMemorySize"))
            lines.append(f"gpu: {name} | {size}")
    return lines


def _edition() -> list[str]:
    build = int(_value(EDITION, "CurrentBuildNumber"))
    lines = [f"windows: Windows {11 if build >= 22000 else 10}, build {build}"]
    with suppress(OSError):
        lines.append(f"product: {_value(BIOS, 'SystemManufacturer')} {_value(BIOS, 'SystemProductName')}")
    return lines


def _smbios() -> bytes:
    ask = _kernel().GetSystemFirmwareTable
    size = ask(_RSMB, 0, None, 0)
    buffer = ctypes.create_string_buffer(size)
    return buffer.raw[_HEADER_BYTES:] if size and ask(_RSMB, 0, buffer, size) == size else b""
