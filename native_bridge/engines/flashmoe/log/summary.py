"""The other lines of the runtime's summary: installs by family, reads ahead, and what was installed before the run."""

from __future__ import annotations

import re

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.io.sizes import GIB
from native_bridge.engines.flashmoe.log.text import NUMBER, WHOLE, Fields
from native_bridge.engines.run_log import Family, Overlap, Prefetch, Prime

_FAMILY = re.compile(rf"\b(gate_up|gate|up|down)={NUMBER} ms / {NUMBER} GiB")
_OVERLAP = re.compile(rf"overlap={WHOLE}/{WHOLE} ")
_REPAIRED = re.compile(rf"oracle-prefetch repaired {WHOLE} replay records")


def families_of(place: str, line: str) -> dict[str, Family]:
    found = {name: Family(float(ms), float(gib) * GIB) for name, ms, gib in _FAMILY.findall(line)}
    if not found:
        raise BadInput(f"{place}: no `gate=… ms / … GiB`; expected the log of the patched runtime; run it again")
    return found


def prefetch_of(place: str, line: str) -> Prefetch:
    of = Fields(place, line)
    return Prefetch(
        name=line.split(maxsplit=1)[0],
        calls=of.count("calls"),
        requests=of.count("uniq"),
        hit_percent=of.number("hit"),
        misses=of.count("miss"),
        bytes_read=of.number("bytes") * GIB,
        sidecar_reads=of.count("pread"),
        packed_copies=of.count("rcopy"),
    )


def overlap_of(place: str, line: str) -> Overlap:
    of, counts = Fields(place, line), _OVERLAP.search(line)
    if counts is None:
        raise BadInput(f"{place}: no `overlap=…/…`; expected the log of the patched runtime; run it again")
    right, predicted = map(int, counts.groups())
    return Overlap(
        name=line.split(maxsplit=1)[0],
        right=right,
        predicted=predicted,
        precision_percent=of.number("precision"),
        coverage_percent=of.number("coverage"),
        calls=of.count("layers"),
    )


def prime_of(place: str, line: str) -> Prime:
    of = Fields(place, line)
    return Prime(
        installs=of.count("installs"),
        bytes_read=of.number("bytes") * GIB,
        total_ms=of.number("total"),
        install_ms=of.number("install"),
        upload_ms=of.number("upload"),
        packed_copies=of.count("rcopy") if "rcopy" in of.values else 0,
    )


def repairs_of(line: str) -> int | None:
    found = _REPAIRED.search(line)
    return int(found[1]) if found else None
