"""The runtime's summary: its counters as printed, and counts and times of routed calls, layers and first installs."""

from __future__ import annotations

import re

from flashmoe_sim.io.errors import Malformed
from flashmoe_sim.io.sizes import GIB, MIB
from native_bridge.engines.flashmoe.log.text import NUMBER, WHOLE, Fields
from native_bridge.engines.flashmoe.modes import PREFETCH
from native_bridge.engines.run_log import LayerLine, Lines, Prime, Routed

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
            raise Malformed(f"{place}: no `gate=… ms / … GiB`; expected the log of the patched runtime; run it again")
        return {"install": found}
    of = Fields(place, line)
    values = of.printed(*COUNTERS[kind])
    if kind == "routed":
        source = _SOURCE.search(line)
        values = {"src": source[1] if source else "", **values}
    name = {"layer": f"layer {of.values.get('layer')}", "overlap": line.partition(" ")[0]}.get(kind, kind)
    return {name: values}


def routed_of(place: str, line: str, residency_place: str, residency_line: str) -> Routed:
    """The sums of the two lines `routed` and `residency`, which must agree."""
    of, residency = Fields(place, line), Fields(residency_place, residency_line)
    cold, evicted, calls = residency.count("cold"), residency.count("evict"), of.count("calls")
    misses = cold + evicted
    if calls == 0:
        raise Malformed(f"{of.place}: calls=0: nothing was routed; run it again")
    shown = of.number("miss/call")
    if abs(misses / calls - shown) > 0.005 + 1e-9:
        raise Malformed(
            f"{residency.place}: {misses} misses in {calls} calls, but the summary says {shown} a call; "
            "the log mixes two runs; run it again"
        )
    return Routed(
        calls=calls,
        refs=of.count("refs"),
        requests=of.count("uniq"),
        misses=misses,
        bytes_read=of.number("bytes") * GIB,
        reads=of.count("pread") + of.count("rcopy"),
        topk_ms=of.number("topk"),
        resolve_ms=of.number("resolve"),
        install_ms=of.number("install"),
        upload_ms=of.number("upload"),
        slotwr_ms=of.number("slotwr"),
        other_ms=of.number("other"),
        io_split=of.count("iosplit"),
        cold_installs=cold,
        evictions=evicted,
        parallel_reads=of.switch("preads"),
        batched_reads=of.switch("batchrd"),
    )


def layer_of(place: str, line: str) -> LayerLine:
    """One line `layer=…`."""
    of = Fields(place, line)
    return LayerLine(of.count("layer"), of.count("miss"), of.number("bytes") * MIB, of.number("install"))


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
