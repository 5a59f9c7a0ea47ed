"""Catalogue parts that could replace a machine's own, one kind of part at a time."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from flashmoe_sim.io.errors import BadInput, Unsupported, shown
from flashmoe_sim.machines.compose import compose_parts
from flashmoe_sim.machines.load import parts_in
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.machines.parts import KINDS, Part, Parts, catalogue
from flashmoe_sim.machines.table import PRESETS
from flashmoe_sim.machines.written import with_cards
from flashmoe_sim.tune.levers import RAM_GIB

RAM = "ram"
# The parts that may be changed, in the order in which they are shown.
CHANGED = ("gpu", RAM, "memory", "storage", "link", "cpu", "chip")
# The most GiB per channel: two unregistered modules of 8, 32 and 64 GiB.
CHANNEL_GIB = {"ddr3": 16, "ddr4": 64, "ddr5": 128}
DRIVES = ("nvme", "sata")
SIZES = ("memory_gib", "bandwidth_gb_s")  # of a card, one of which must be larger
_MEMORY = re.compile(r"([a-z0-9]+)-\d+x(\d+)")


@dataclass(frozen=True)
class OtherPart:
    """Another part of one kind.

    name: of the part, empty for another size of RAM. ram_gib: for `ram`, and for `chip`, which is another computer.
    beside: whether the present GPU stays, and this one comes beside it.
    """

    kind: str
    name: str = ""
    ram_gib: float | None = None
    n_gpus: int = 1
    beside: bool = False

    def added(self, parts: Parts) -> int:
        """How many of the part are bought."""
        gpu = parts.by_kind.get("gpu")
        return self.n_gpus - parts.n_gpus if gpu is not None and gpu.name == self.name else self.n_gpus

    def made(self, parts: Parts) -> Parts:
        """The parts after this change."""
        if self.beside:
            return with_cards(parts, (*parts.cards, catalogue()[self.name]))
        by_kind = dict(parts.by_kind)
        if self.name:
            by_kind[self.kind] = catalogue()[self.name]
        if self.new_memory(parts):
            by_kind.pop("memory", None)  # the processor's own comes with it
        ordered = {kind: by_kind[kind] for kind in KINDS if kind in by_kind}
        n_gpus = self.n_gpus if self.kind == "gpu" else parts.n_gpus
        before_gib = parts.before_gib or parts.ram_gib
        return replace(
            parts, by_kind=ordered, ram_gib=self.ram_gib or parts.ram_gib, n_gpus=n_gpus, before_gib=before_gib
        )

    def new_memory(self, parts: Parts) -> bool:
        """Whether it is a processor that takes RAM of another generation than there is."""
        own = _memory_of(parts)
        if self.kind != "cpu" or own is None:
            return False
        return _generation(catalogue()[catalogue()[self.name].memory]) != _generation(own)

    def in_words(self, parts: Parts) -> str:
        """The new part in words, such as `64 GiB of RAM`."""
        if self.kind == RAM:
            return f"{self.ram_gib:g} GiB of RAM"
        part, after = catalogue()[self.name], self.made(parts)
        if self.beside:
            return f"{part.title} as a second GPU"
        new = f"{after.times(part)}{part.title}"
        if self.kind == "cpu":
            ram = _memory_of(after)
            new += " and its board" if ram is None or ram == _memory_of(parts) else f", its board and {ram.title}"
        return f"{new} with {self.ram_gib:g} GiB" if self.kind == "chip" else new


def parts_of(machine: str) -> Parts:
    """The parts of a machine that is described as parts. Raises BadInput for a preset or a file, which has none."""
    if machine in PRESETS or (parts := parts_in(machine)) is None:
        raise Unsupported(
            f"{shown(machine)}: is described as a whole, so no part of it can be exchanged; write the machine as "
            "parts, such as 'rtx-3060 + ryzen-5600 + ddr4-3200x2 + 64GiB + nvme-gen4'"
        )
    compose_parts(parts)
    return parts


def changes(parts: Parts) -> dict[str, list[OtherPart]]:
    """Possible changes of the named parts, by kind; a machine without a GPU may get one.

    Soldered parts stay: all but the storage of a laptop or a phone with LPDDR memory, and a laptop's GPU.
    """
    kinds = parts.by_kind
    if (chip := kinds.get("chip")) is not None:
        drives = [] if chip.system == "macos" else _drives(parts)
        return {"chip": _computers(chip, parts)} | ({"storage": drives} if drives else {})
    found = {"storage": _drives(parts)}
    memory, gpu = _memory_of(parts), kinds.get("gpu")
    lpddr = memory is not None and _generation(memory) not in CHANNEL_GIB
    if not lpddr:
        found[RAM] = [OtherPart(RAM, ram_gib=size) for size in RAM_GIB if size > (parts.ram_gib or 0)]
    if not lpddr and (gpu is None or gpu.form != "laptop"):
        found["gpu"] = _cards(parts)
        own = kinds if memory is None else {**kinds, "memory": memory}
        for kind in ("memory", "link", "cpu"):
            if kind in own:
                found[kind] = [OtherPart(kind, part.name) for part in _others(kind, own[kind])]
    return {kind: found[kind] for kind in CHANGED if found.get(kind)}


def note_on(parts: Parts) -> str:
    """What is not changed because it is unnamed or soldered in, and what to do; empty if everything is named."""
    kinds = parts.by_kind
    if (chip := kinds.get("chip")) is not None and chip.system == "macos":
        return "a Mac's memory and SSD are soldered in, so each change is another Mac"
    memory = _memory_of(parts)
    if memory is not None and _generation(memory) not in CHANNEL_GIB:
        return "the memory is soldered in, so only storage is changed"
    missing = [] if "storage" in kinds else ["storage (such as nvme-gen4)"]
    if chip is None and memory is None:
        missing.append("a CPU or memory (such as ryzen-5600)")
    return f"unnamed parts do not change: add {' and '.join(missing)}" if missing else ""


def machine_of(parts: Parts, before: Parts) -> Machine | None:
    """The machine with changed parts; None if they are incompatible."""
    if not _go_together(parts, before):
        return None
    try:
        return compose_parts(parts)
    except BadInput:
        return None


def _cards(parts: Parts) -> list[OtherPart]:
    """One more of the present card, another one beside it, or other cards with more memory or bandwidth.

    Only parts with one kind of card are changed.
    """
    gpu, found = parts.by_kind.get("gpu"), []
    if parts.unlike:
        return []
    for part in catalogue().values():
        if part.kind != "gpu" or not part.api or part.form in ("laptop", "module") or not (part.shop or part == gpu):
            continue
        if part == gpu:
            found.append(OtherPart("gpu", part.name, n_gpus=parts.n_gpus + 1))
        elif gpu is None or any(part.numbers[key].value > gpu.numbers[key].value for key in SIZES):
            found.append(OtherPart("gpu", part.name, n_gpus=parts.n_gpus))
        if gpu is not None and part != gpu and not part.form and (part.maker, part.api) == (gpu.maker, gpu.api):
            found.append(OtherPart("gpu", part.name, beside=True))
    return found


def _computers(chip: Part, parts: Parts) -> list[OtherPart]:
    """Computers with the same kind of system, in each memory size in which they are sold."""
    return [
        OtherPart("chip", part.name, ram_gib=size)
        for part in catalogue().values()
        if part.kind == "chip" and part.system == chip.system
        for size in part.sold_gib
        if (part, size) != (chip, parts.ram_gib)
    ]


def _drives(parts: Parts) -> list[OtherPart]:
    drive = parts.by_kind.get("storage")
    if drive is None or drive.class_ == "phone":
        return []
    return [OtherPart("storage", part.name) for part in _others("storage", drive) if part.class_ in DRIVES]


def _others(kind: str, own: Part) -> list[Part]:
    """Other parts of a kind; for processors, one for each combination of memory, link and form."""
    found: dict[object, Part] = {}
    for part in catalogue().values():
        if part.kind != kind or part == own or not part.shop:
            continue
        if kind != "cpu":
            found[part.name] = part
        elif part.form != "laptop" and part.pcie and _generation(catalogue()[part.memory]) in CHANNEL_GIB:
            found.setdefault((part.memory, part.pcie, part.form), part)
    return list(found.values())


def _go_together(parts: Parts, before: Parts) -> bool:
    """Whether processor, memory and its size are compatible; parts that were combined before always are."""
    memory, cpu = _memory_of(parts), parts.by_kind.get("cpu")
    own = _memory_of(before)
    if memory is None:
        return True
    generation, channels = _generation(memory), _channels(memory)
    same = parts.ram_gib == before.ram_gib and memory == own
    if not same and (parts.ram_gib or 0) > CHANNEL_GIB.get(generation, 0) * channels:
        return False
    if cpu is not None and cpu != before.by_kind.get("cpu"):
        takes = catalogue()[cpu.memory]
        return generation == _generation(takes) and channels <= _channels(takes)
    if own is None or memory == own:
        return True
    most = max(_channels(own), 2 if cpu is None or not cpu.memory else _channels(catalogue()[cpu.memory]))
    return generation == _generation(own) and channels <= most


def _memory_of(parts: Parts) -> Part | None:
    cpu = parts.by_kind.get("cpu")
    return parts.by_kind.get("memory") or (None if cpu is None else catalogue().get(cpu.memory))


def _generation(memory: Part) -> str:
    return _matched(memory)[1]


def _channels(memory: Part) -> int:
    return int(_matched(memory)[2])


def _matched(memory: Part) -> re.Match[str]:
    found = _MEMORY.fullmatch(memory.name)
    assert found is not None
    return found
