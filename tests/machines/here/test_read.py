"""Computers as they describe themselves, hostile ones among them, are the right parts in every field."""

from __future__ import annotations

import re
from typing import Any

import pytest

from flashmoe_sim.machines.compose import compose
from flashmoe_sim.machines.here.read import Here, this_machine
from flashmoe_sim.machines.here.texts import Told, parse_seen
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.written import parse_parts
from tests.machines.here.records import MACHINES, seen_of

NAMED_ELSEWHERE = re.compile("== registry|device-tree|Darwin")  # what names a processor beside /proc/cpuinfo
ALL = pytest.mark.parametrize("recorded", MACHINES, ids=[one["name"] for one in MACHINES])


def read(recorded: dict[str, Any]) -> Here:
    return this_machine(seen_of(recorded["seen"]))


@ALL
def test_each_field_is_right(recorded: dict[str, Any]) -> None:
    found = read(recorded)
    assert sorted(found.spelling.split(" + ")) == sorted(recorded["parts"].split(" + "))
    for name, value in recorded["values"].items():
        assert value in [one.value for one in found.fields if one.name == name]
    told = [f"{one.name}: {one.effect}" for one in found.fields if one.effect]
    for text in recorded["told"]:
        assert any(one.startswith(text) for one in told), told
    if "gpu_gib" in recorded:
        assert found.machine.gpu is not None
        assert found.machine.gpu.memory_gib is not None
        assert found.machine.gpu.memory_gib.value == recorded["gpu_gib"]


@ALL
def test_what_is_printed_can_be_pasted(recorded: dict[str, Any]) -> None:
    found = read(recorded)
    pasted = load_machine(found.spelling)
    assert (pasted.name, pasted.os) == (found.spelling, found.machine.os)
    assert pasted.memory == found.machine.memory
    assert found.machine.cpu_cores <= max(pasted.cpu_cores, 1024 * (not pasted.cpu_cores))


@ALL
def test_every_field_has_a_source_or_an_effect(recorded: dict[str, Any]) -> None:
    found = read(recorded)
    names = {one.name for one in found.fields}
    assert {"CPU", "RAM", "memory", "drive", "OS"} <= names or "macOS" in str(found.fields)
    for one in found.fields:
        assert (one.value and one.source) or one.effect, one
        assert "\n" not in one.effect


def test_there_are_enough() -> None:
    assert len(MACHINES) >= 20
    assert len({one["source"] for one in MACHINES}) >= 20


@pytest.mark.parametrize("lost", ["nvidia-smi", "dmidecode", "/proc/cpuinfo", "/proc/meminfo", "drive", "lspci", "pci"])
@ALL
def test_without_any_one_answer_there_is_a_machine(recorded: dict[str, Any], lost: str) -> None:
    """Whatever is not there, hangs, fails or is nonsense: no traceback, and what is told is not of that answer."""
    seen = seen_of(recorded["seen"])
    for answer in (
        None,
        Told(problem="no answer within 1.3 s"),
        Told("\0\ufffd,,,\n: |", 1),
        Told("[N/A]\n==\n,"),
    ):
        hostile = {name: one for name, one in seen.items() if name != lost} | ({} if answer is None else {lost: answer})
        found = this_machine(hostile)
        assert found.machine.memory is not None
        assert all("\n" not in one.effect for one in found.fields)
        kinds = parse_parts(found.spelling).by_kind
        if lost == "dmidecode" and "udev" not in recorded["seen"] and "smbios" not in recorded["seen"]:
            assert "memory" not in kinds
        if lost == "drive" and "== disk" not in recorded["seen"]:
            assert "storage" not in kinds
        if lost == "/proc/cpuinfo" and not NAMED_ELSEWHERE.search(recorded["seen"]) and "chip" not in kinds:
            assert kinds["cpu"].name == "other-cpu"


def test_a_part_beside_this_replaces_one_of_its_kind() -> None:
    found = read(next(one for one in MACHINES if one["name"] == "WSL with half of the RAM"))
    machine = found.with_parts("ddr5-6000x2 + 64GiB + 2x rtx-3090 + nvme-gen4")
    assert machine.name == "2x rtx-3090 + ryzen-7950x + ddr5-6000x2 + pcie4x16 + nvme-gen4 + 64GiB + linux"
    assert machine.cpu_features == found.machine.cpu_features
    mac = read(next(one for one in MACHINES if one["name"] == "a Mac whose limit was raised")).with_parts("usb-ssd")
    assert mac.gpu is not None
    assert mac.gpu.memory_gib is not None
    assert mac.gpu.memory_gib.value == 112
    assert mac.storage == compose("m5-max + 128GiB + usb-ssd").storage


GOOD = "NVIDIA GeForce RTX 4090, 24564, 24080, 4, 16, 16"
BAD = "WARNING: infoROM is corrupted at gpu 0000:01:00.0"


@pytest.mark.parametrize(
    ("rows", "code", "parts", "told"),
    [
        ([GOOD, BAD], 14, "rtx-4090", f"nvidia-smi warns: {BAD}"),
        ([BAD, GOOD, GOOD], 0, "2x rtx-4090", f"nvidia-smi warns: {BAD}"),
        ([GOOD], 0, "rtx-4090", ""),
        ([",,,,"], 0, "", "no output; the answer is without it"),
        ([",,,,", GOOD], 0, "rtx-4090", ""),
        ([BAD], 14, "", f"exit code 14: {BAD}; the answer is without it"),
        (["NVIDIA-SMI has failed, a, b, c, d, e"], 9, "", "exit code 9: NVIDIA-SMI has failed"),
    ],
)
def test_rows_of_nvidia_smi_count_beside_its_warnings(rows: list[str], code: int, parts: str, told: str) -> None:
    seen = dict(parse_seen("== system\nLinux x86_64\n== /proc/meminfo\nMemTotal:  32800000 kB\n"))
    found = this_machine(seen | {"nvidia-smi": Told("\n".join(rows), code)})
    assert [word for word in found.spelling.split(" + ") if "rtx" in word] == ([parts] if parts else [])
    effects = [one.effect for one in found.fields if one.name == "GPU" and one.effect]
    assert [one[: len(told)] for one in effects] == ([told] if told else [])


def test_limits_of_either_version_of_control_groups() -> None:
    base = "== system\nLinux x86_64\n== /proc/meminfo\nMemTotal:  32800000 kB\nMemAvailable: 30000000 kB\n"
    old = "== cgroup\n/m/memory.limit_in_bytes 9223372036854771712\n/m/a/memory.limit_in_bytes 2147483648\n"
    old += "/m/a/cpu.cfs_quota_us 150000\n/m/a/cpu.cfs_period_us 100000\n/m/a/memory.usage_in_bytes 1073741824\n"
    new = "== cgroup\n/m/memory.max max\n/m/a/memory.max 2147483648\n"
    new += "/m/a/cpu.max 150000 100000\n/m/a/memory.current 1073741824\n"
    for limits in (old, new):
        found = this_machine(parse_seen(base + limits))
        assert "2GiB" in found.spelling
        assert found.machine.cpu_cores == 2
        assert "1.0 GiB now" in [one.value for one in found.fields if one.name == "free RAM"]
    free = this_machine(
        parse_seen(base + "== cgroup\n/m/memory.limit_in_bytes 9223372036854771712\n/m/cpu.max max 100000\n")
    )
    assert "32GiB" in free.spelling
