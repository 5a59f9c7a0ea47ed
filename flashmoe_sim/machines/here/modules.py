"""Modules of RAM as the firmware lists them (SMBIOS, type 17): by dmidecode, by udev's database, or as bytes.

Source: DMTF's DSP0134, section 7.18; systemd's src/udev/dmi_memory_id for the names in the database.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from flashmoe_sim.machines.parts import Part, catalogue, memory_part

_KINDS = {0x18: "ddr3", 0x1A: "ddr4", 0x1D: "lpddr3", 0x1E: "lpddr4", 0x22: "ddr5", 0x23: "lpddr5"}
_SIZE = re.compile(r"(\d+) ?(MB|GB|TB|MiB|GiB|kB)", re.IGNORECASE)
_SIZES_GIB = {"KB": 2.0**-20, "MB": 2.0**-10, "MIB": 2.0**-10, "GB": 1.0, "GIB": 1.0, "TB": 1024.0}
_CHANNELS = (  # how boards name a channel in the locators of a module: the CPU or controller, if any, and the channel
    re.compile(r"Controller(\d+)-Channel([A-H])", re.IGNORECASE),
    re.compile(
        r"(?:NODE|P|CPU|PROC)[ _]?(\d+)[ _]?(?:Node\d+[ _]?)?Channel[ _]?([A-L]|\d{1,2})(?![A-Z0-9])", re.IGNORECASE
    ),
    re.compile(r"()Channel[ _-]?([A-L]|\d)(?![A-Z])", re.IGNORECASE),
    re.compile(r"(?:P|CPU|PROC)[ _]?(\d)[ _-]+DIMM[ _]?([A-L])\d?(?![A-Z0-9])", re.IGNORECASE),
    re.compile(r"()DIMM[ _-]?([A-L])[ _]?\d?(?![A-Z0-9])", re.IGNORECASE),
)
_UDEV = re.compile(r"^E:MEMORY_DEVICE_(\d+)_([A-Z_]+)=(.*)$", re.MULTILINE)
_WIDE = 64  # bits of a channel
_NEAR = 0.004  # how far a rate may be from its usual name: 2667 is DDR4-2666


@dataclass(frozen=True)
class Module:
    """One module that is there. kind: such as ddr4, or empty. mt_s: as it runs; rated_mt_s: as it is sold; 0: unknown.

    bits: of its data, 0 if unknown. place: its locators.
    """

    size_gib: float
    kind: str
    mt_s: int
    rated_mt_s: int
    bits: int
    place: str


class Ram(NamedTuple):
    """What the modules are together: their size, the part of one socket if it is known, and what is not known."""

    size_gib: float
    part: Part | None
    unknown: str
    how: str


def of_dmidecode(text: str) -> list[Module]:
    """The modules in the output of `dmidecode -t memory`."""
    found = []
    for block in re.split(r"\n\s*\n", text):
        if not re.search(r"^\s*Memory Device\s*$", block, re.MULTILINE):
            continue
        says = dict(re.findall(r"^\s+([\w ]+): *(.*?)\s*$", block, re.MULTILINE))
        if (size := _SIZE.match(says.get("Size", ""))) is None:
            continue
        runs = says.get("Configured Memory Speed") or says.get("Configured Clock Speed") or ""
        found.append(
            Module(
                int(size[1]) * _SIZES_GIB[size[2].upper()],
                _kind(says.get("Type", "")),
                _number(runs),
                _number(says.get("Speed", "")),
                _number(says.get("Data Width", "")),
                f"{says.get('Locator', '')} {says.get('Bank Locator', '')}",
            )
        )
    return found


def of_udev(text: str) -> list[Module]:
    """The modules in udev's database of the firmware, /run/udev/data/+dmi:id, which every user may read."""
    by_number: dict[str, dict[str, str]] = {}
    for number, key, value in _UDEV.findall(text):
        by_number.setdefault(number, {})[key] = value
    return [
        Module(
            _number(says["SIZE"]) / 2**30,
            _kind(says.get("TYPE", "")),
            _number(says.get("CONFIGURED_SPEED_MTS", "")),
            _number(says.get("SPEED_MTS", "")),
            _number(says.get("DATA_WIDTH", "")),
            f"{says.get('LOCATOR', '')} {says.get('BANK_LOCATOR', '')}",
        )
        for says in by_number.values()
        if _number(says.get("SIZE", ""))
    ]


def of_smbios(table: bytes) -> list[Module]:
    """The modules in the firmware's own table."""
    return [module for formatted, names in _structures(table, 17, 0x15) for module in _of_structure(formatted, names)]


def processors_of(table: bytes) -> tuple[int, int]:
    """The sockets that are taken, by the firmware's own table, and the cores of all; 0 for what is not known."""
    found = [one for one, _ in _structures(table, 4, 0x24) if one[0x18] & 0x40]
    cores = [int.from_bytes(one[0x2A:0x2C], "little") if one[0x23] == 0xFF else one[0x23] for one in found]
    return len(found), sum(cores) if all(cores) else 0


def _structures(table: bytes, kind: int, least: int) -> Iterator[tuple[bytes, list[str]]]:
    """The structures of a type that have at least so many bytes, each with its texts, which are counted from 1."""
    at = 0
    while at + 4 <= len(table) and table[at + 1] >= 4:
        length = table[at + 1]
        end = table.find(b"\0\0", at + length)
        if end < 0:
            return
        if table[at] == kind and length >= least:
            texts = table[at + length : end].split(b"\0")
            yield table[at : at + length], ["", *(text.decode("ascii", "replace") for text in texts)]
        at = end + 2


def _of_structure(one: bytes, names: Sequence[str]) -> list[Module]:
    """The module of one structure, if its slot is taken."""

    def word(at: int, size: int = 2) -> int:
        return int.from_bytes(one[at : at + size], "little") if at + size <= len(one) else 0

    size, bits = word(0x0C), word(0x0A)
    mib: float = word(0x1C, 4) & 0x7FFFFFFF if size == 0x7FFF else size & 0x7FFF
    if size in (0, 0xFFFF):
        return []
    gib = mib / 2**20 if size & 0x8000 and size != 0x7FFF else mib / 1024
    place = " ".join(names[one[at]] if one[at] < len(names) else "" for at in (0x10, 0x11))
    rates = [0 if rate == 0xFFFF else rate for rate in (word(0x20), word(0x15))]
    return [Module(gib, _KINDS.get(one[0x12], ""), rates[0], rates[1], 0 if bits == 0xFFFF else bits, place)]


def ram_of(modules: Sequence[Module], cpu: Part | None, sockets: int) -> Ram:
    """The size, rate and channels of modules beside this processor, of one socket."""
    size = sum(module.size_gib for module in modules)
    kinds = {module.kind for module in modules}
    if len(kinds) != 1 or not (kind := next(iter(kinds))):
        return Ram(size, None, "its kind", "")
    rates = {_rate(module) for module in modules}
    channels, how = _channels(modules, cpu, sockets)
    if 0 in rates:
        return Ram(size, None, "its speed", f"{kind.upper()}, {channels} channels {how}")
    name = f"{kind}-{_usual(kind, min(rates))}x{channels}"
    slower = "" if all(module.mt_s for module in modules) else "as rated, it may run slower; "
    mixed = f"the slowest of {', '.join(map(str, sorted(rates)))} MT/s; " if len(rates) > 1 else ""
    return Ram(size, memory_part(name), "", f"{slower}{mixed}channels {how}")


def _channels(modules: Sequence[Module], cpu: Part | None, sockets: int) -> tuple[int, str]:
    """The channels of one socket, each counted as 64 bits wide, and how they were counted."""
    most = int(cpu.memory.rpartition("x")[2]) if cpu is not None and cpu.memory else 0
    if all(0 < module.bits < _WIDE for module in modules):
        return max(1, round(sum(module.bits for module in modules) / _WIDE / sockets)), "by the bits of each"
    named = [_channel(module.place) for module in modules]
    if all(named):
        channels, how = max(1, len(set(named)) // sockets), "by their slots"
    else:
        channels, how = max(1, len(modules) // sockets), "by the number of modules"
        most = most or 2
    return (min(channels, most), how) if most else (channels, how)


def _channel(place: str) -> tuple[str, str] | None:
    found = next((found for pattern in _CHANNELS if (found := pattern.search(place))), None)
    return (found[1], found[2].upper()) if found else None


def _rate(module: Module) -> int:
    """Transfers a second in millions; some firmware gives the clock, which is half of them.

    It is the clock if RAM of this kind is never so slow, if it is half of what the module is rated at, or if it is no
    usual rate, but its double is one.
    """
    rate = module.mt_s or module.rated_mt_s
    least = {"ddr3": 800, "ddr4": 1600, "ddr5": 3200, "lpddr4": 1600, "lpddr5": 3200}.get(module.kind, 0)
    odd = not _is_usual(module.kind, rate) and _is_usual(module.kind, 2 * rate)
    half = abs(2 * rate - module.rated_mt_s) <= _NEAR * rate
    return 2 * rate if 0 < rate < least or half or odd else rate


def _usual(kind: str, rate: int) -> int:
    """The rate by its usual name."""
    known = {int(found[1]) for name in catalogue() if (found := re.match(rf"{kind}x?-(\d+)x", name))}
    near = min(known, key=lambda one: abs(one - rate), default=0)
    return near if abs(near - rate) <= _NEAR * rate else rate


def _is_usual(kind: str, rate: int) -> bool:
    return f"{kind}-{_usual(kind, rate)}x2" in catalogue()


def _kind(text: str) -> str:
    kind = text.strip().lower()
    return kind if re.fullmatch(r"(?:lp)?ddr\d", kind) else ""


def _number(text: str) -> int:
    found = re.match(r"\s*(\d+)", text)
    return int(found[1]) if found else 0


def modules_in(answers: Iterable[tuple[str, list[Module]]]) -> tuple[str, list[Module]]:
    """The first source that lists modules of a known kind, else the first that lists any; empty if none does."""
    listed = [(source, modules) for source, modules in answers if modules]
    return next((one for one in listed if one[1][0].kind), listed[0] if listed else ("", []))
