"""Facts about a Mac: its chip and GPU, from macOS's own tools."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.machines import PRESETS, load_machine
from flashmoe_sim.machines.machine import Quantity
from native_bridge.process import ask

TIMEOUT_S = 20.0
SYSCTL = ("machdep.cpu.brand_string", "iogpu.wired_limit_mb")
PROFILER = ("system_profiler", "-json", "SPHardwareDataType", "SPDisplaysDataType")


@dataclass(frozen=True)
class MacFacts:
    """The known facts; None if the system does not report them.

    chip: such as `Apple M5 Pro`. model: such as `Mac17,6`. wired_limit_mib: of memory that the GPU may take, where one
    was set.
    """

    chip: str
    model: str | None
    gpu_cores: int | None
    wired_limit_mib: int | None


def mac_facts() -> MacFacts:
    """Ask this Mac."""
    return parse_mac(_answer(("sysctl", *SYSCTL)), _answer(PROFILER))


def _answer(question: tuple[str, ...]) -> str:
    with suppress(BadInput):
        return ask(question, timeout_s=TIMEOUT_S).stdout
    return ""


def parse_mac(sysctl: str, profiler: str) -> MacFacts:
    """From the lines `name: value` of sysctl, and the JSON of system_profiler."""
    values = dict(re.findall(r"^(\S+): *(.+?)\s*$", sysctl, re.MULTILINE))
    hardware, display = _first(profiler, "SPHardwareDataType"), _first(profiler, "SPDisplaysDataType")
    chip = hardware.get("chip_type") or values.get("machdep.cpu.brand_string") or hardware.get("cpu_type")
    return MacFacts(
        chip=str(chip or "Mac"),
        model=hardware.get("machine_model"),
        gpu_cores=_integer(display.get("sppci_cores")),
        wired_limit_mib=_integer(values.get("iogpu.wired_limit_mb")) or None,  # 0: the system's own limit
    )


def _first(profiler: str, kind: str) -> dict[str, Any]:
    """The first entry of a kind; empty if there is none, or what was printed is no JSON."""
    with suppress(ValueError, LookupError, TypeError):
        entry = json.loads(profiler)[kind][0]
        return entry if isinstance(entry, dict) else {}
    return {}


def _integer(text: object) -> int | None:
    return int(text) if isinstance(text, str) and text.isdecimal() else None


def known_bandwidth(facts: MacFacts) -> tuple[str, Quantity] | None:
    """The preset of the same chip with as many GPU cores, and its memory's bandwidth; None if there is none."""
    if facts.gpu_cores is None:
        return None
    for name in PRESETS:
        machine = load_machine(name)
        if machine.title.startswith(f"{facts.chip} ({facts.gpu_cores}-core GPU)") and machine.memory is not None:
            return name, machine.memory.bandwidth_gb_s
    return None
