"""How much memory a process takes at most, in all its libraries."""

from __future__ import annotations

import re
from pathlib import Path

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_RESET_PEAK = "5"


class Peak:
    """The most memory from its making on, beyond what there was then; 0 if the system does not say (macOS)."""

    def __init__(self) -> None:
        self.before = 0
        try:
            _CLEAR.write_text(_RESET_PEAK)
            self.before = _kib("VmRSS")
        except OSError:
            pass

    def grown_bytes(self) -> int:
        return (_kib("VmHWM") - self.before) * 1024 if self.before else 0


def address_space_bytes() -> int:
    """What the process has mapped, touched or not; 0 if the system does not say."""
    if not _STATUS.exists():
        return 0
    return _kib("VmSize") * 1024


def _kib(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", _STATUS.read_text(), re.MULTILINE)
    return int(found[1]) if found else 0
