"""A Mac, as its own programs describe it."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any


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
