"""The drive that models are read from: which it is, or of which kind."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from flashmoe_sim.machines.here.texts import Seen, text_of
from flashmoe_sim.machines.parts import Part, catalogue
from flashmoe_sim.machines.written import named_part

_GENERATIONS = {"8.0": "nvme-gen3", "16.0": "nvme-gen4", "32.0": "nvme-gen5"}  # GT/s of a lane
_MODELS = (  # how makers write the models of drives that are sold under another name
    (re.compile(r"CT\d+P3PSSD", re.IGNORECASE), "crucial-p3-plus"),
    (re.compile(r"CT\d+P3SSD", re.IGNORECASE), "crucial-p3"),
    (re.compile(r"CT\d+P310SSD", re.IGNORECASE), "crucial-p310"),
    (re.compile(r"CT\d+(T\d{3})SSD", re.IGNORECASE), "crucial-{0}"),
    (re.compile(r"CT\d+MX500SSD", re.IGNORECASE), "mx500"),
    (re.compile(r"SKC3000", re.IGNORECASE), "kc3000"),
    (re.compile(r"SNV([23])S", re.IGNORECASE), "nv{0}"),
)
_NOISE = re.compile(r"\b(?:ssd|nvme|m\.2|wd(?:[_ ]black)?|\d+(?:\.\d+)? ?[gt]b)\b|_", re.IGNORECASE)
_BUSES = {17: "nvme", 11: "sata", 7: "usb", 3: "sata"}  # of Windows' MSFT_PhysicalDisk
_ASK = 'give --machine "this + nvme-gen4", or measure with `sim machine probe`'


class Drive(NamedTuple):
    """part: of the catalogue, or None. said: what was found. effect: what its absence means."""

    part: Part | None
    said: str
    source: str
    effect: str


def drive_of(seen: Seen) -> Drive:
    """The drive of the home folder: by Linux' /sys, or by Windows' list of disks."""
    says = dict(re.findall(r'(\w+)="([^"]*)"', text_of(seen, "drive")))
    if (text := text_of(seen, "disk")).strip():
        says |= _of_windows(text)
    model, bus = says.get("model", "").strip(), says.get("bus", "")
    if not model and not bus:
        where = says.get("on", "")
        why = f"the home folder is on {where}, which is no drive" if where else "no drive that can be read"
        return Drive(None, "", "", f"{why}: taken as 0.5 GB/s or more; {_ASK}")
    source = "the list of disks" if text else "/sys/block"
    said = f"{model or 'a drive without a name'} ({bus})" if bus else model
    if bus in ("virtual", "network"):
        return Drive(None, said, source, f"a {bus} drive, whose speed is not known; {_ASK}")
    if (part := _of_model(model)) is not None:
        return Drive(part, said, source, "")
    link = says.get("link", "").partition(" ")[0]
    name = {
        "nvme": _GENERATIONS.get(link, ""),
        "sata": "hdd" if says.get("rotational") == "1" else "sata-ssd",
        "usb": "hdd" if says.get("rotational") == "1" else "",
        "mmc": "emmc-5.1",
    }.get(bus, "")
    if not name:
        return Drive(None, said, source, f"its speed is not known; {_ASK}")
    by = f", {catalogue()[name].title} by its link" if bus == "nvme" else ""
    return Drive(catalogue()[name], f"{said}{by}", source, "")


def _of_model(model: str) -> Part | None:
    """The part of a drive's model."""
    for pattern, name in _MODELS:
        if found := pattern.search(model):
            return catalogue().get(name.format(*(group.lower() for group in found.groups())))
    part = named_part(" ".join(_NOISE.sub(" ", model).split()))
    return part if part is not None and part.kind == "storage" else None


def _of_windows(text: str) -> Mapping[str, str]:
    """Of the system's drive, from PowerShell's JSON."""
    with suppress(ValueError, TypeError, AttributeError):
        found = json.loads(text)
        disk: dict[str, Any] = found[0] if isinstance(found, list) else found
        bus = disk.get("BusType")
        bus = _BUSES.get(bus, "") if isinstance(bus, int) else str(bus or "").lower()
        spins = str(disk.get("MediaType")) in ("3", "HDD")
        return {"model": str(disk.get("FriendlyName") or ""), "bus": bus, "rotational": "1" if spins else "0"}
    return {}
