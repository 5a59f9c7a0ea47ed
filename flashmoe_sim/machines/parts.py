"""The parts of machines: the catalogue, and finding the parts that a text names."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from importlib import resources
from typing import Any

from flashmoe_sim.io.errors import BadInput, shown
from flashmoe_sim.machines.machine import MAKERS, Quantity

FILES = {
    "gpus": "gpu",
    "apple": "chip",
    "unified": "chip",
    "cpus": "cpu",
    "memory": "memory",
    "links": "link",
    "storage": "storage",
}
KINDS = ("gpu", "chip", "cpu", "memory", "link", "storage")
TEXTS = ("memory", "pcie", "class", "system", "api", "os", "compute")
NEAREST = 3
TITLES = {"linux": "Linux", "windows": "Windows", "macos": "macOS"}
WRITTEN = {  # operating systems as people write them, without spaces
    "linux": ("linux", "ubuntu", "debian", "fedora", "wsl", "wsl2"),
    "windows": ("windows", "windows10", "windows11", "win10", "win11"),
    "macos": ("macos", "osx"),
}
_SYSTEMS = {way: name for name, ways in WRITTEN.items() for way in ways}
_SIZE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?) ?gi?b(?: ram)?", re.IGNORECASE)
_TERABYTES = re.compile(r"[\d.]+ ?ti?b\b", re.IGNORECASE)
_SEVERAL = re.compile(r"(\d{1,3}) ?[x*\u00d7] ?(?=\S{3})", re.IGNORECASE)
MOST_GPUS = 16
_PLUS = re.compile(r"\s+\+\s*|\+(?=[^\s-])")  # not the plus in "Max+ 395"


@dataclass(frozen=True)
class Part:
    """One part: its kind, its published numbers, and the names of parts that go with it.

    kind: gpu, chip (CPU and GPU on one memory), cpu, memory, link or storage. source, condition: of all its numbers,
    unless a number has its own. memory: the best that a CPU supports. pcie: the link of a GPU or CPU.
    class_: of storage. system: of a chip, macos or linux. api: the GPU's programming interface, one of machine.APIS.
    os: of a chip that has only one, such as linux. compute: the GPU's compute capability, by NVIDIA's list.
    features: the CPU's, of machine.FEATURES. sold_gib: sizes of RAM with which a chip is sold.
    """

    name: str
    kind: str
    title: str
    source: str
    condition: str
    aliases: tuple[str, ...] = ()
    numbers: Mapping[str, Quantity] = field(default_factory=dict)
    memory: str = ""
    pcie: str = ""
    class_: str = ""
    system: str = ""
    api: str = ""
    os: str = ""
    compute: str = ""
    features: tuple[str, ...] | None = None
    sold_gib: tuple[float, ...] = ()

    @property
    def maker(self) -> str:
        """One of machine.MAKERS, with which the title begins; empty for others."""
        maker = self.title.partition(" ")[0].lower()
        return maker if maker in MAKERS else ""


@dataclass(frozen=True)
class Parts:
    """The parts named in a text: at most one of a kind, in the order of KINDS, and RAM in GiB if given.

    n_gpus: the number of cards of the one GPU. os: the operating system, one of machine.SYSTEMS, or empty.
    """

    by_kind: Mapping[str, Part]
    ram_gib: float | None
    n_gpus: int = 1
    os: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The parts, the RAM and the operating system, as written on the command line."""
        ram = () if self.ram_gib is None else (f"{self.ram_gib:g}GiB",)
        system = (self.os,) if self.os else ()
        return (*(f"{self.times(part)}{part.name}" for part in self.by_kind.values()), *ram, *system)

    @property
    def titles(self) -> tuple[str, ...]:
        """The parts' titles, the RAM and the operating system, for display."""
        ram = () if self.ram_gib is None else (f"{self.ram_gib:g} GiB",)
        system = (TITLES[self.os],) if self.os else ()
        return (*(f"{self.times(part)}{part.title}" for part in self.by_kind.values()), *ram, *system)

    def times(self, part: Part) -> str:
        """The number of a part, as a prefix to its name; empty for one."""
        return f"{self.n_gpus}x " if part.kind == "gpu" and self.n_gpus > 1 else ""


@cache
def catalogue() -> dict[str, Part]:
    """Every part by its name, in the order of the files."""
    parts = {}
    folder = resources.files("flashmoe_sim.machines").joinpath("parts")
    for file, kind in FILES.items():
        document = tomllib.loads(folder.joinpath(f"{file}.toml").read_text("utf-8"))
        for group in document.values():
            shared = {key: value for key, value in group.items() if key != "parts"}
            for name, own in group["parts"].items():
                parts[name] = _part(name, kind, shared | own)
    return parts


def _part(name: str, kind: str, entry: Mapping[str, Any]) -> Part:
    texts = {("class_" if key == "class" else key): entry[key] for key in TEXTS if key in entry}
    known = ("title", "aliases", "source", "condition", "sold_gib", "features", *TEXTS)
    source, condition = entry["source"], entry["condition"]
    numbers = {key: _number(value, source, condition) for key, value in entry.items() if key not in known}
    aliases, sold = tuple(entry.get("aliases", ())), tuple(entry.get("sold_gib", ()))
    features = tuple(entry["features"]) if "features" in entry else None
    return Part(
        name, kind, entry["title"], source, condition, aliases, numbers, features=features, sold_gib=sold, **texts
    )


def _number(given: float | Mapping[str, Any], source: str, condition: str) -> Quantity:
    """A number with its own or its group's source and condition; one without an interval is a specification."""
    own: Mapping[str, Any] = given if isinstance(given, Mapping) else {"value": given}
    value = float(own["value"])
    return Quantity(
        value,
        float(own.get("lo", value)),
        float(own.get("hi", value)),
        own.get("source", source),
        own.get("condition", condition),
        own.get("estimated", False),
    )


def parse_parts(text: str) -> Parts:
    """The parts of a text such as `2x rtx-3060 + ryzen-5600 + ddr4-3200x2 + 64GiB`, in any order.

    Raises BadInput for an unknown part, for two of one kind, and for several of a part that is not a GPU.
    """
    by_kind: dict[str, Part] = {}
    ram_gib, n_gpus, system = None, 1, ""
    for word in map(str.strip, _PLUS.split(text)):
        if size := _SIZE.fullmatch(word):
            if ram_gib is not None:
                raise BadInput(f"{ram_gib:g}GiB and {word}: two sizes of RAM; give one")
            ram_gib = float(size[1])
            if not ram_gib:
                raise BadInput(f"{word}: no RAM; give its size, such as 64GiB")
            continue
        if named := _SYSTEMS.get(_plain(word)):
            if system not in ("", named):
                raise BadInput(f"{system} and {named}: two operating systems; give one")
            system = named
            continue
        if _TERABYTES.match(word):
            raise BadInput(
                f"{shown(word)}: write RAM as 1024GiB; a drive by its kind, without its size, such as nvme-gen4"
            )
        number, part = _counted(word)
        if part.kind == "gpu" and by_kind.get("gpu") == part:
            raise BadInput(f"{part.name} twice; write several cards as 2x {part.name}")
        if part.kind in by_kind:
            raise BadInput(f"{by_kind[part.kind].name} and {part.name}: two parts of one kind, {part.kind}; give one")
        by_kind[part.kind] = part
        n_gpus = max(n_gpus, number)
    return Parts({kind: by_kind[kind] for kind in KINDS if kind in by_kind}, ram_gib, n_gpus, system)


def _counted(word: str) -> tuple[int, Part]:
    """The number and name of a part: `2x rtx-3090`, `2 x rtx-3090` and `2*rtx-3090` are two; only for GPUs."""
    several = None if _plain(word) in _names() else _SEVERAL.match(word)
    if several is None:
        return 1, find_part(word)
    number, part = int(several[1]), find_part(word[several.end() :])
    if not 1 <= number <= MOST_GPUS:
        raise BadInput(f"{shown(word)}: {number} cards; give 1 to {MOST_GPUS}")
    if number > 1 and part.kind != "gpu":
        raise BadInput(f"{shown(word)}: several of one {part.kind}; only a GPU may be several; give one")
    return number, part


def find_part(word: str) -> Part:
    """The part with this name, alias or title.

    Case, spaces and hyphens are ignored. Raises BadInput with the nearest names for an unknown part.
    """
    if not word:
        raise BadInput("an empty part; write parts with one + between two, such as rtx-3060 + 64GiB")
    names = _names()
    if (key := _plain(word)) in names:
        return catalogue()[names[key]]
    if word.isdecimal():
        raise BadInput(f"unknown part {shown(word)}; RAM has a unit: write {word}GiB")
    near = dict.fromkeys(names[found] for found in get_close_matches(key, names, n=2 * NEAREST, cutoff=0.6))
    nearest = " or ".join(map(repr, list(near)[:NEAREST]))
    raise BadInput(
        f"unknown part {shown(word)}; {f'did you mean {nearest}? ' if near else ''}`sim machine parts` lists all"
    )


def matching(word: str) -> list[Part]:
    """The parts with this word in their kind, name, aliases or title. Raises BadInput if there is none."""
    key = _plain(word)
    found = [
        part
        for part in catalogue().values()
        if key == part.kind or any(key in _plain(text) for text in (part.name, *part.aliases, part.title))
    ]
    return found or [find_part(word)]


@cache
def _names() -> dict[str, str]:
    """Part names by every way to write them. Names come first, so that no alias or title hides one."""
    parts = catalogue().values()
    ways = [(part.name, part.name) for part in parts]
    ways += [(alias, part.name) for part in parts for alias in part.aliases]
    for part in parts:
        maker, _, rest = part.title.partition(" ")
        ways += [(part.title, part.name), (rest or maker, part.name)]
        ways.append((rest.removeprefix("GeForce ").removeprefix("Core ").removeprefix("Radeon "), part.name))
        if part.kind == "cpu" and re.search(r"\d{3}", model := part.title.split()[-1]):
            ways.append((model, part.name))
    names: dict[str, str] = {}
    for way, name in ways:
        if key := _plain(way):
            names.setdefault(key, name)
    return names


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())
