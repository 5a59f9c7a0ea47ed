"""What an operating system says: a Mac's own programs, and what control groups allow this process."""

from __future__ import annotations

import json
import math
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


UNLIMITED = 2.0**60  # bytes: what version 1 calls no limit is more


def memory_limit_bytes(lines: str) -> int | None:
    """The least limit; None without one."""
    return min(
        (size for size in _sizes(lines, r"memory\.(?:max|high|limit_in_bytes)") if size < UNLIMITED), default=None
    )


def memory_used_bytes(lines: str) -> int:
    """What the innermost group uses; 0 if that is not known."""
    return min(_sizes(lines, r"memory\.(?:current|usage_in_bytes)"), default=0)


def cpus(lines: str) -> int:
    """How many CPUs' time is allowed, at least 1; 0 without a limit."""
    values = {path: value for path, _, value in (line.partition(" ") for line in lines.splitlines())}
    found = []
    for path, value in values.items():
        if path.endswith("cpu.max"):
            quota, _, period = value.partition(" ")
        elif path.endswith("cpu.cfs_quota_us"):
            quota, period = value, values.get(path.replace("cfs_quota_us", "cfs_period_us"), "")
        else:
            continue
        if quota.isdecimal() and period.isdecimal() and int(period):
            found.append(max(1, math.ceil(int(quota) / int(period))))
    return min(found, default=0)


def _sizes(lines: str, name: str) -> list[int]:
    return [int(size) for size in re.findall(rf"{name} (\d+)$", lines, re.MULTILINE)]
