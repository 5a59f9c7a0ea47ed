"""The parts of machines: the catalogue, and what a text can name."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from typing import Any

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
TEXTS = ("memory", "pcie", "class", "system", "api", "os", "compute", "form")
FORMS = ("", "laptop", "module", "workstation", "server")
TITLES = {"linux": "Linux", "windows": "Windows", "macos": "macOS"}
DESKTOP = "desktop"
MOST_GPUS = 16
MOST_CORES = 1024
MOST_SOCKETS = 2


@dataclass(frozen=True)
class Part:
    """One part: its kind, its published numbers, and the names of parts that go with it.

    kind: gpu, chip (CPU and GPU on one memory), cpu, memory, link or storage. source, condition: of all its numbers,
    unless a number has its own. memory: the best that a CPU supports; empty if that is not known. pcie: the link of a
    GPU or CPU.
    class_: of storage. system: of a chip, macos or linux. api: the GPU's programming interface, one of machine.APIS.
    os: of a chip that has only one, such as linux. compute: the GPU's compute capability, by NVIDIA's list.
    form: of a CPU or GPU, one of FORMS; empty for a desktop computer's, module for a socket of its own.
    features: the CPU's, of machine.FEATURES. cores: its physical ones, of unequal ones the fast ones; 0 if not known.
    sold_gib: sizes of RAM with which a chip is sold. shop: whether it can be bought as it is, which cards that somebody
    modified, parts of clouds and of one computer only cannot.
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
    form: str = ""
    features: tuple[str, ...] | None = None
    cores: int = 0
    sold_gib: tuple[float, ...] = ()
    shop: bool = True

    @property
    def maker(self) -> str:
        """One of machine.MAKERS, with which the title begins; empty for others."""
        maker = self.title.partition(" ")[0].lower()
        return maker if maker in MAKERS else ""


@dataclass(frozen=True)
class Parts:
    """The parts named in a text: at most one of a kind, in the order of KINDS, and RAM in GiB if given.

    n_gpus: the number of cards of this GPU. unlike: other cards beside them, each as often as it is there.
    os: the operating system, one of machine.SYSTEMS, or empty.
    generation: of memory without a speed, such as ddr4, or empty. channels: of memory without a speed, for one socket;
    0 if not given. sockets: the number of CPUs; RAM is of all of them, memory of one. before_gib: RAM before some was
    added, by whose size the speed of unnamed memory is guessed.
    """

    by_kind: Mapping[str, Part]
    ram_gib: float | None
    n_gpus: int = 1
    unlike: tuple[Part, ...] = ()
    os: str = ""
    generation: str = ""
    sockets: int = 1
    channels: int = 0
    before_gib: float | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The parts, the RAM and the operating system, as written on the command line."""
        ram = "" if self.ram_gib is None else f"{self.ram_gib:g}GiB"
        parts = (f"{self.times(part)}{part.name}" for part in self._each)
        return (*parts, *filter(None, (ram, self.generation, self.of_channels, self.of_desktop, self.os)))

    @property
    def titles(self) -> tuple[str, ...]:
        """The parts' titles, the RAM and the operating system, for display."""
        ram = "" if self.ram_gib is None else f"{self.ram_gib:g} GiB"
        titles = (f"{self.times(part)}{part.title}" for part in self._each)
        return (*titles, *filter(None, (ram, self.generation.upper(), self.of_channels, TITLES.get(self.os))))

    def times(self, part: Part) -> str:
        """The number of a part, as a prefix to its name; empty for one."""
        number = self.sockets if part.kind == "cpu" else sum(card.name == part.name for card in self.cards)
        return f"{number}x " if number > 1 else ""

    @property
    def cards(self) -> tuple[Part, ...]:
        """Every GPU, equal ones as often as they are there."""
        gpu = self.by_kind.get("gpu")
        return () if gpu is None else (*[gpu] * self.n_gpus, *self.unlike)

    @property
    def of_desktop(self) -> str:
        """What says that a card is a desktop's beside a laptop's CPU, as written beside the other parts; or nothing."""
        cpu, link = self.by_kind.get("cpu"), self.by_kind.get("link")
        inside = cpu is not None and cpu.form == "laptop" and (link is None or link.name.startswith("pcie"))
        return DESKTOP if inside and any(one.form == "" and laptop_card(one) for one in self.cards) else ""

    @property
    def of_channels(self) -> str:
        """The channels of RAM without a speed, as written beside the other parts; empty if not given."""
        return f"{self.channels}-channel" if self.channels else ""

    def with_parts(self, added: Parts) -> Parts:
        """These parts with others instead of those of their kind."""
        cards = added if added.cards else self
        return replace(
            self,
            by_kind={kind: part for kind in KINDS if (part := added.by_kind.get(kind) or self.by_kind.get(kind))},
            ram_gib=added.ram_gib or self.ram_gib,
            os=added.os or self.os,
            generation=added.generation or self.generation,
            channels=added.channels or self.channels,
            n_gpus=cards.n_gpus,
            unlike=cards.unlike,
            sockets=added.sockets if "cpu" in added.by_kind else self.sockets,
        )

    @property
    def _each(self) -> list[Part]:
        """Every part once."""
        others = (part for part in self.by_kind.values() if part.kind != "gpu")
        return list({part.name: part for part in (*self.cards, *others)}.values())


_MEMORY = re.compile(r"((?:lp)?ddr[345]x?)-?(\d{3,5})x(\d{1,2})")
_RATES_MT_S = {"ddr3": (800, 2400), "ddr4": (1600, 5400), "ddr5": (3200, 10000), "lpddr": (1600, 11000)}
MOST_CHANNELS = 12


def memory_part(name: str) -> Part | None:
    """The memory of a name such as ddr4-3466x4, whether or not the catalogue lists its rate and channels; else None."""
    if (known := catalogue().get(name)) is not None or (found := _MEMORY.fullmatch(name)) is None:
        return known
    kind, rate, channels = found[1], int(found[2]), int(found[3])
    generation = "lpddr" if kind.startswith("lp") else kind
    if generation not in _RATES_MT_S or not 1 <= channels <= MOST_CHANNELS:
        return None
    least, most = _RATES_MT_S[generation]
    like = next(one for one in catalogue().values() if one.kind == "memory" and one.name.startswith(generation))
    if not least <= rate <= most:
        return None
    value = rate * 8 * channels / 1000
    gb_s = replace(like.numbers["bandwidth_gb_s"], value=value, lo=value, hi=value)
    title = f"{kind.upper()}-{rate}, {channels} channel{'' if channels == 1 else 's'}"
    return replace(like, name=f"{kind}-{rate}x{channels}", title=title, aliases=(), numbers={"bandwidth_gb_s": gb_s})


def integrated(chip: Part) -> bool:
    """Whether a chip is the GPU inside a processor, whose RAM is chosen by who builds the computer."""
    return "gpu_share" in chip.numbers


@cache
def catalogue() -> dict[str, Part]:
    """Every part by its name, in the order of the files."""
    return {name: part for file in FILES for name, part in _in_file(file).items()}


def laptop_card(card: Part) -> Part | None:
    """The card of laptops with the name of a desktop's, or None."""
    return catalogue().get(f"{re.sub(r'-[0-9]+gb$', '', card.name)}-laptop")


def card(name: str) -> Part | None:
    """The GPU of a name, without reading the other parts."""
    return _in_file("gpus").get(name)


@cache
def _in_file(file: str) -> dict[str, Part]:
    document = tomllib.loads(resources.files("flashmoe_sim.machines").joinpath(f"parts/{file}.toml").read_text("utf-8"))
    parts = {}
    for group in document.values():
        shared = {key: value for key, value in group.items() if key != "parts"}
        for name, own in group["parts"].items():
            parts[name] = _part(name, FILES[file], shared | own)
    return parts


def _part(name: str, kind: str, entry: Mapping[str, Any]) -> Part:
    texts = {("class_" if key == "class" else key): entry[key] for key in TEXTS if key in entry}
    known = ("title", "aliases", "source", "condition", "sold_gib", "shop", "features", "cores", *TEXTS)
    source, condition = entry["source"], entry["condition"]
    numbers = {key: _number(value, source, condition) for key, value in entry.items() if key not in known}
    aliases, sold = tuple(entry.get("aliases", ())), tuple(entry.get("sold_gib", ()))
    features = tuple(entry["features"]) if "features" in entry else None
    return Part(
        name,
        kind,
        entry["title"],
        source,
        condition,
        aliases,
        numbers,
        features=features,
        cores=entry.get("cores", 0),
        sold_gib=sold,
        shop=entry.get("shop", True),
        **texts,
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
        own.get("guessed", False),
    )
