"""The counters of the runtime's summary as printed, and what was installed before the run."""

from __future__ import annotations

import re

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.io.sizes import GIB
from native_bridge.engines.flashmoe.log.text import NUMBER, WHOLE, Fields
from native_bridge.engines.flashmoe.modes import PREFETCH
from native_bridge.engines.run_log import Lines, Prime

AHEAD = tuple(line for _, line in PREFETCH.values())
ALL_HIT_PRIME, RESIDENT_PRIME = "oracle-all-hit prime", "resident-slot-bank prime"
# By line: the keys of its counters. Times, and numbers that follow from others, are left out.
COUNTERS = {
    "routed": ("calls", "refs", "uniq", "hit", "miss/call", "bytes", "pread", "rcopy"),
    "residency": ("cold", "evict"),
    "layer": ("calls", "uniq", "hit", "miss", "cold", "evict", "peak", "bytes"),
    **dict.fromkeys(AHEAD, ("calls", "uniq", "hit", "miss", "bytes", "pread", "rcopy")),
    "overlap": ("overlap", "precision", "coverage", "layers"),
    ALL_HIT_PRIME: ("installs", "bytes"),
    RESIDENT_PRIME: ("installs", "bytes", "rcopy"),
}
_FAMILY = re.compile(rf"\b(gate_up|gate|up|down)={NUMBER} ms / {NUMBER} GiB")
_SOURCE = re.compile(r"\b(?:src|source)=([A-Za-z]\S*)")
_REPAIRED = re.compile(rf"oracle-prefetch repaired {WHOLE} replay records")


def counters_of(place: str, kind: str, line: str) -> Lines:
    """The counters of one line. Raises BadInput if one is missing or is not a number."""
    if kind == "install":
        found = {name: gib for name, _, gib in _FAMILY.findall(line)}
        if not found:
            raise BadInput(f"{place}: no `gate=… ms / … GiB`; expected the log of the patched runtime; run it again")
        return {"install": found}
    of = Fields(place, line)
    values = of.printed(*COUNTERS[kind])
    if kind == "routed":
        source = _SOURCE.search(line)
        values = {"src": source[1] if source else "", **values}
    name = {"layer": f"layer {of.values.get('layer')}", "overlap": line.partition(" ")[0]}.get(kind, kind)
    return {name: values}


def prime_of(place: str, line: str) -> Prime:
    of = Fields(place, line)
    return Prime(
        installs=of.count("installs"),
        bytes_read=of.number("bytes") * GIB,
        total_ms=of.number("total"),
        install_ms=of.number("install"),
        upload_ms=of.number("upload"),
    )


def repairs_of(line: str) -> str | None:
    found = _REPAIRED.search(line)
    return found[1] if found else None
