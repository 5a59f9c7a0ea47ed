"""What control groups allow this process, from a line `path value` for each of their files, of either version."""

from __future__ import annotations

import math
import re

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
