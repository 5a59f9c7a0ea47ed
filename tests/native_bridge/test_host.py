"""The facts about the machine."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from flashmoe_sim.io.errors import BadInput
from native_bridge import host
from native_bridge.process import Answer

CPUINFO = "processor : 0\nmodel name\t: Some Processor\nflags\t\t: fpu sse2 amx_bf16 amx_tile\n"


def test_memory_and_disk(tmp_path: Path) -> None:
    import psutil

    assert 0 < host.free_ram_bytes() <= psutil.virtual_memory().total
    assert host.free_disk_bytes(tmp_path / "not" / "yet") == host.free_disk_bytes(tmp_path) > 0


def test_without_psutil_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psutil", None)
    with pytest.raises(BadInput, match=re.escape("pip install '.[bridge]'")):
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
