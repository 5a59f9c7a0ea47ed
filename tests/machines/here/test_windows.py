"""What Windows says of itself, with a registry and system calls in its place."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from flashmoe_sim.machines.here import windows
from flashmoe_sim.machines.here.read import this_machine
from flashmoe_sim.machines.here.texts import Told
from tests.machines.here.records import smbios

TABLE = bytes.fromhex(
    smbios("sockets: 1 | 8\nmodules: 2 | 16 GB | DDR5 | 5600 MT/s | 5600 MT/s | 64 bits | DIMM 1 | P0 CHANNEL {L}")
)
VALUES: dict[tuple[str, str], object] = {
    (windows.PROCESSORS, "ProcessorNameString"): "AMD Ryzen 7 7700X 8-Core Processor              ",
    (f"{windows.ADAPTERS}\\0000", "DriverDesc"): "AMD Radeon(TM) Graphics",
    (f"{windows.ADAPTERS}\\0001", "DriverDesc"): "AMD Radeon RX 7900 XTX",
    (f"{windows.ADAPTERS}\\0001", "HardwareInformation.qwMemorySize"): 25753026560,
    (windows.EDITION, "CurrentBuildNumber"): "26100",
    (windows.BIOS, "SystemManufacturer"): "ASUS",
    (windows.BIOS, "SystemProductName"): "System Product Name",
}


class Registry:
    """The calls of winreg that are used."""

    HKEY_LOCAL_MACHINE = 0

    class OpenKey:
        def __init__(self, root: int, folder: str) -> None:
            if not any(where == folder for where, _ in VALUES):
                raise FileNotFoundError(folder)
            self.folder = folder

        def __enter__(self) -> str:
            return self.folder

        def __exit__(self, *of_error: object) -> None:
            return

    @staticmethod
    def QueryValueEx(key: str, name: str) -> tuple[object, int]:
        if (key, name) not in VALUES:
            raise FileNotFoundError(name)
        return VALUES[key, name], 1


def fill_memory(reference: Any) -> int:
    memory = reference._obj
    assert memory.length == 64
    memory.total, memory.free = 34000000000, 20000000000
    return 1


def firmware(provider: int, number: int, buffer: Any, size: int) -> int:
    assert (provider, number) == (0x52534D42, 0)
    if buffer is not None:
        buffer.raw = b"\0\3\5\0" + len(TABLE).to_bytes(4, "little") + TABLE
    return len(TABLE) + 8


def test_the_registry_and_the_firmware(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = SimpleNamespace(
        GlobalMemoryStatusEx=fill_memory,
        IsProcessorFeaturePresent=lambda number: number in (40, 41),
        GetSystemFirmwareTable=firmware,
    )
    monkeypatch.setitem(sys.modules, "winreg", Registry)
    monkeypatch.setattr(windows, "_kernel", lambda: kernel)
    found = this_machine({**windows.look(), "system": Told("Windows AMD64")})
    assert found.spelling == "rx-7900-xtx + ryzen-7700x + ddr5-5600x2 + 32GiB + windows"
    values = {one.name: one.value for one in found.fields}
    assert values["CPU"].endswith(", 8 cores, avx2 avx512")
    assert (values["OS"], values["free RAM"]) == ("Windows 11, build 26100", "18.6 GiB now")


def test_without_any_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "winreg", Registry)
    for key in list(VALUES):
        monkeypatch.delitem(VALUES, key)
    monkeypatch.setattr(windows, "_kernel", SimpleNamespace)
    found = this_machine({**windows.look(), "system": Told("Windows AMD64")})
    assert found.spelling == "other-cpu + 8GiB + windows"
