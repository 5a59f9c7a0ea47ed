"""The facts about the machine."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from flashmoe_sim.io.errors import Missing
from flashmoe_sim.machines.here.by_system import MacFacts, parse_mac
from flashmoe_sim.machines.load import load_machine
from native_bridge import host
from native_bridge.probe import probe
from native_bridge.probe.probe import known_bandwidth, machine_facts
from native_bridge.process import Answer

CPUINFO = "processor : 0\nmodel name\t: Some Processor\nflags\t\t: fpu sse2 amx_bf16 amx_tile\n"


def test_memory_and_disk(tmp_path: Path) -> None:
    import psutil

    assert 0 < host.free_ram_bytes() <= psutil.virtual_memory().total
    assert host.free_disk_bytes(tmp_path / "not" / "yet") == host.free_disk_bytes(tmp_path) > 0


def test_without_psutil_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psutil", None)
    with pytest.raises(Missing, match=re.escape("pip install '.[bridge]'")):
        host.physical_cores()


def test_the_machine_has_a_name() -> None:
    name = host.machine_name()
    assert name.isprintable()
    assert " cores, " in name
    assert host.cpu_name() in name


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what a processor announces in /proc/cpuinfo")
@pytest.mark.parametrize(
    ("flags", "granted", "trap"), [("amx_tile", False, True), ("amx_tile", True, False), ("sse2", False, False)]
)
def test_the_trap_of_amx(monkeypatch: pytest.MonkeyPatch, flags: str, granted: bool, trap: bool) -> None:
    lines = CPUINFO.replace("amx_bf16 amx_tile", flags).splitlines()
    monkeypatch.setattr(host, "_lines", lambda path: lines)
    monkeypatch.setattr(host, "_amx_granted", lambda: granted)
    monkeypatch.setattr(host.platform, "machine", lambda: "x86_64")
    assert host.amx_trap() is trap
    assert host.cpu_name() == "Some Processor"


@pytest.mark.skipif(sys.platform != "linux", reason="arch_prctl is a call of Linux")
def test_asking_for_amx_has_an_answer() -> None:
    assert host._amx_granted() in (True, False)


def test_temperatures(monkeypatch: pytest.MonkeyPatch) -> None:
    import psutil

    class Reading:
        def __init__(self, current: float) -> None:
            self.current = current

    sensors: dict[str, Any] = {"k10temp": [Reading(61.5), Reading(70.25)], "nvme": [Reading(99.0)]}
    monkeypatch.setattr(psutil, "sensors_temperatures", lambda: sensors, raising=False)
    monkeypatch.setattr(host.shutil, "which", lambda name: None)
    assert host.temperature_c() == {"cpu": 70.25}
    monkeypatch.setattr(host.shutil, "which", lambda name: sys.executable)
    monkeypatch.setattr(host, "ask", lambda arguments, timeout_s: Answer(0, "44\n58\n", "", False))
    assert host.temperature_c() == {"cpu": 70.25, "gpu": 58.0}
    monkeypatch.setattr(host, "ask", lambda arguments, timeout_s: Answer(9, "58", "no driver", False))
    assert host.temperature_c() == {"cpu": 70.25}


SYSCTL = "machdep.cpu.brand_string: Apple M5 Pro\niogpu.wired_limit_mb: 40960\n"
PROFILER = json.dumps(
    {
        "SPDisplaysDataType": [
            {
                "_name": "Apple M5 Pro",
                "spdisplays_vendor": "sppci_vendor_Apple",
                "sppci_bus": "spdisplays_builtin",
                "sppci_cores": "20",
                "sppci_device_type": "spdisplays_gpu",
                "sppci_model": "Apple M5 Pro",
            }
        ],
        "SPHardwareDataType": [
            {
                "_name": "hardware_overview",
                "chip_type": "Apple M5 Pro",
                "machine_model": "Mac17,9",
                "machine_name": "MacBook Pro",
                "number_processors": "proc 18:6:12",
                "physical_memory": "48 GB",
            }
        ],
    }
)
MAC = MacFacts("Apple M5 Pro", "Mac17,9", 20, 40960)


def test_a_mac() -> None:
    assert parse_mac(SYSCTL, PROFILER) == MAC
    assert parse_mac(SYSCTL.replace("40960", "0"), PROFILER).wired_limit_mib is None


@pytest.mark.parametrize(
    "profiler", ["", "no JSON", "[]", "{}", '{"SPHardwareDataType": []}', '{"SPHardwareDataType": [3]}']
)
def test_a_mac_that_tells_less(profiler: str) -> None:
    assert parse_mac(SYSCTL, profiler) == MacFacts("Apple M5 Pro", None, None, 40960)
    assert parse_mac("sysctl: unknown oid\n", profiler) == MacFacts("Mac", None, None, None)


def test_the_bandwidth_of_a_chip_is_that_of_the_preset_with_as_many_gpu_cores() -> None:
    preset = load_machine("m5-pro-48")
    assert known_bandwidth(MAC) == ("m5-pro-48", preset.memory.bandwidth_gb_s)
    assert known_bandwidth(MacFacts("Apple M5 Pro", None, 16, None)) is None
    assert known_bandwidth(MacFacts("Apple M5", None, 20, None)) is None
    assert known_bandwidth(MacFacts("Apple M5 Pro", None, None, None)) is None


def test_the_file_system_is_that_of_the_last_mount_over_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    mounted = [
        SimpleNamespace(device="/dev/none1", mountpoint="/", fstype="ext4"),
        SimpleNamespace(device="old", mountpoint=str(inner), fstype="xfs"),
        SimpleNamespace(device="tmpfs", mountpoint=str(inner), fstype="tmpfs"),
    ]
    monkeypatch.setattr(psutil, "disk_partitions", lambda all: mounted)
    assert machine_facts(inner).where == "tmpfs"
    assert machine_facts(tmp_path).where == "ext4 on /dev/none1"
    monkeypatch.setattr(psutil, "disk_partitions", lambda all: [])
    assert machine_facts(tmp_path).where == "unknown file system on unknown device"


def test_a_control_group_limits_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "cgroups", lambda: "/a/memory.max max\n/a/memory.limit_in_bytes 9223372036854771712")
    total = psutil.virtual_memory().total
    assert (machine_facts(tmp_path).ram_bytes, machine_facts(tmp_path).ram_limited) == (total, False)
    monkeypatch.setattr(probe, "cgroups", lambda: "/a/memory.max 2147483648\n/a/b/memory.max 1073741824")
    found = machine_facts(tmp_path)
    assert (found.ram_bytes, found.ram_limited) == (2**30, True)
    assert found.available_bytes <= 2**30
