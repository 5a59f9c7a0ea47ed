"""What the system says of itself: a Mac from what its tools print, and the disk a folder is on."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from flashmoe_sim.machines import load_machine
from native_bridge.probe import facts
from native_bridge.probe.facts import MacFacts, known_bandwidth, machine_facts, parse_mac

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
    limit, none = tmp_path / "memory.max", tmp_path / "none"
    none.write_text("max\n")
    monkeypatch.setattr(facts, "CGROUP_LIMITS", (limit, none))
    total = psutil.virtual_memory().total
    assert (machine_facts(tmp_path).ram_bytes, machine_facts(tmp_path).ram_limited) == (total, False)
    limit.write_text("1073741824\n")
    found = machine_facts(tmp_path)
    assert (found.ram_bytes, found.ram_limited) == (2**30, True)
    assert found.available_bytes <= 2**30
