"""The GPUs of a computer: by the driver's program, by the kernel's files, or by the list of PCI devices."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from flashmoe_sim.machines.here.texts import Seen, text_of, trouble_of
from flashmoe_sim.machines.parts import Part
from flashmoe_sim.machines.written import named_part, reported_part

NVIDIA, AMD, INTEL = "0x10de", "0x1002", "0x8086"
MAKERS = {NVIDIA: "nvidia", AMD: "amd", INTEL: "intel"}
_LSPCI = re.compile(r"^(\S+) (?:VGA|3D|Display)[^:]*: (.+?) \[(\w{4}):\w{4}\](?: \(rev \w+\))?", re.MULTILINE)
_BRACKET = re.compile(r"\[([^\[\]]+)\](?!.*\[)")
_SLICE = re.compile(r"^\s+MIG (\S+)", re.MULTILINE)
_UNCLEAR = re.compile(r"\((?:tm|r)\)|\b(?:lite hash rate|rev\. \w+|graphics)\b", re.IGNORECASE)
_INSIDE = re.compile(  # of processors: names without a number, and those of AMD's small ones
    r"uhd|hd graphics|iris|radeon(?:\(tm\))? graphics|raphael|cezanne|renoir|phoenix|granite ridge", re.IGNORECASE
)
_MOBILE = re.compile(r" ?\b(?:mobile|max-q)\b(?: / (?:max-q|mobile))?", re.IGNORECASE)
DRIVER, LATE = "/proc/driver/nvidia", "no answer within"
NEAR = 0.12  # how far the driver's figure may be from what the card was sold with: ECC takes 6%


@dataclass(frozen=True)
class SeenGpu:
    """One GPU. name: as it is reported; source: by what. part: of the catalogue, if it has it.

    memory_gib: its own, as reported; None if not known. link: a name such as pcie4x16, or empty; wide: the lanes that
    card and slot could have, if more than they use. own: whether it has memory of its own; None if not known.
    trouble: why it cannot be used as it is.
    """

    name: str
    source: str
    maker: str
    part: Part | None
    memory_gib: float | None = None
    link: str = ""
    wide: int = 0
    own: bool | None = None
    trouble: str = ""


@dataclass(frozen=True)
class Found:
    """gpus: those that can compute, the driver's order. trouble: what hides a GPU that may be there.

    warning: what the driver's program says beside the GPUs that it lists.
    """

    gpus: tuple[SeenGpu, ...]
    trouble: str = ""
    warning: str = ""


def gpus_of(seen: Seen, processor: str, *, contained: bool) -> Found:
    """The GPUs of a Linux or Windows computer. processor: its name, which tells GPUs within it apart.

    contained: whether this is a container, which sees cards that it cannot use.
    """
    driven, said = _of_nvidia(seen)
    trouble, warning = ("", said) if driven else (said, "")
    others = [gpu for gpu in (*_of_pci(seen, processor), *_of_registry(seen)) if not (driven and gpu.maker == "nvidia")]
    if LATE in trouble and (named := _of_driver(seen)):
        return Found((*named, *(gpu for gpu in others if gpu.maker != "nvidia")))
    nvidia = [gpu for gpu in others if gpu.maker == "nvidia"]
    if nvidia and contained:
        others = [gpu for gpu in others if gpu.maker != "nvidia"]
        why = trouble or "nvidia-smi is not there"
        return Found((*driven, *others), f"{nvidia[0].name} is in the computer, but not in this container ({why})")
    if trouble or not text_of(seen, "registry"):  # Windows lists adapters by their drivers
        why = f"its driver does not answer ({trouble or 'nvidia-smi is not there'})"
        others = [replace(gpu, trouble=why) if gpu.maker == "nvidia" else gpu for gpu in others]
    return Found((*driven, *others), "" if nvidia else trouble, warning)


def _of_nvidia(seen: Seen) -> tuple[list[SeenGpu], str]:
    """By nvidia-smi: name, memory in MiB, free, PCIe generation, lanes, most lanes; and the first thing else it says.

    That is why it gave nothing, or a warning, such as of a damaged infoROM, beside rows that are good.
    """
    trouble, answer = trouble_of(seen, "nvidia-smi"), seen.get("nvidia-smi")
    if answer is None or answer.problem:
        return [], trouble
    found, others, slices = [], [], _SLICE.findall(text_of(seen, "nvidia-smi -L"))
    for row in csv.reader(answer.text.splitlines(), skipinitialspace=True):  # with a warning it ends with code 14
        name, *numbers = [word.strip() for word in row] or [""]
        if not name or len(numbers) < 5 or (answer.code and not _number(numbers[0])):
            others.append(", ".join(filter(None, (name, *numbers)))[:120])
            continue
        memory, _, generation, lanes, most = map(_number, numbers[:5])
        gib = memory / 1024 if memory else None
        part = _card(name, gib)
        if part is None and gib is None:
            chip = named_part(name)
            part = chip if chip is not None and chip.kind == "chip" else None
        divided = f"it is divided (MIG {', '.join(slices)}); whole cards are modelled" if slices else ""
        link = f"pcie{generation}x{lanes}" if generation and lanes else ""
        wide = most if lanes < most else 0
        own = part is None or part.kind == "gpu"
        found.append(
            SeenGpu(name, "nvidia-smi", "nvidia", part, gib, link if own else "", wide if own else 0, own, divided)
        )
    said = next(filter(None, others), "")
    return (found, said) if found else ([], trouble or said or "no output")


def _of_driver(seen: Seen) -> list[SeenGpu]:
    """By the files of NVIDIA's driver, which answer at once, without memory and link."""
    models = re.findall(r"^Model:\s+(.+?)\s*$", text_of(seen, DRIVER), re.MULTILINE)
    return [
        SeenGpu(model, f"{DRIVER}; nvidia-smi was too slow", "nvidia", _card(model, None), own=True) for model in models
    ]


def _card(name: str, gib: float | None) -> Part | None:
    """The card of this name and memory; None for a memory with which it is not known."""
    part = reported_part(name, "gpu", memory_gib=gib) or reported_part(
        _MOBILE.sub(" laptop", name), "gpu", memory_gib=gib
    )
    if part is not None and gib is not None:
        sold = part.numbers["memory_gib"].value
        if abs(gib - sold) > NEAR * sold:
            return None
    return part


def _of_pci(seen: Seen, processor: str) -> Iterator[SeenGpu]:
    """By the kernel's files, with names by amdgpu.ids, rocm-smi or lspci."""
    listed = {
        address.removeprefix("0000:"): (name, f"0x{vendor}")
        for address, name, vendor in _LSPCI.findall(text_of(seen, "lspci"))
    }
    rows = [dict(re.findall(r'(\w+)="([^"]*)"', line)) for line in text_of(seen, "pci").splitlines()]
    for row in rows:
        row["listed"] = listed.get(row.get("address", "").removeprefix("0000:"), ("", ""))[0]
    if not rows:
        rows = [{"address": at, "vendor": vendor, "listed": name} for at, (name, vendor) in listed.items()]
    series = _rocm(seen)
    for row in rows:
        vendor = row.get("vendor", "")
        if vendor not in MAKERS:
            continue
        bytes_ = _number(row.get("vram", ""))
        gib = bytes_ / 2**30 if bytes_ else None
        names = [(row.get("name", ""), "amdgpu.ids"), (row["listed"], "lspci")]
        if vendor == AMD:
            names.insert(1, (series.pop(0) if series else "", "rocm-smi"))
        yield _one(MAKERS[vendor], [one for one in names if one[0]], gib, processor)


def _one(maker: str, names: list[tuple[str, str]], gib: float | None, processor: str) -> SeenGpu:
    """One device by the first of its names that says which it is; a GPU within a processor by the processor's too."""
    within = re.search(r"\b(?:w/|with) (?:amd )?(radeon.*)", processor, re.IGNORECASE)
    ways = [*names, *([(within[1], "the processor's name")] if within and maker == "amd" else [])]
    for name, source in ways:
        bracket = _BRACKET.search(name)
        for one in (bracket[1] if bracket else name).split("/"):
            tidy = " ".join(_UNCLEAR.sub(" ", one).split())
            if (card := _card(tidy, gib)) is not None and (gib is not None or "/" not in name or maker == "nvidia"):
                return SeenGpu(tidy, source, maker, card, gib, own=True)
            if source != "lspci" or "/" not in name:
                chip = named_part(tidy)
                if chip is not None and chip.kind == "chip" and chip.maker == maker:
                    return SeenGpu(tidy, source, maker, chip, gib, own=False)
    if maker == "amd" and (chip := named_part(processor)) is not None and chip.kind == "chip":
        return SeenGpu(chip.title, "the processor's name", maker, chip, gib, own=False)
    name = names[0][0] if names else f"a GPU of {maker}"
    inside = _INSIDE.search(name)
    return SeenGpu(
        name, names[0][1] if names else "PCI", maker, None, gib, own=False if inside or maker == "intel" else None
    )


def _rocm(seen: Seen) -> list[str]:
    """The cards' names by rocm-smi's table, in the order of the devices; empty for one without a name."""
    rows = csv.DictReader(text_of(seen, "rocm-smi").splitlines())
    names = (row.get("Card Series") or row.get("Card series") or "" for row in rows)
    return ["" if re.fullmatch(r"0x\w+|N/A", name) else name for name in names]


def _of_registry(seen: Seen) -> Iterator[SeenGpu]:
    """By Windows' registry: a line for each adapter, its name and the bytes of its memory."""
    for line in text_of(seen, "registry").splitlines():
        kind, _, rest = line.partition(": ")
        if kind != "gpu":
            continue
        name, _, size = rest.rpartition(" | ")
        maker = next((one for one in MAKERS.values() if one in name.lower()), "amd" if "radeon" in name.lower() else "")
        if maker:
            yield _one(maker, [(name, "the registry")], _number(size) / 2**30 or None, "")


def _number(text: str) -> int:
    found = re.match(r"\s*(\d+)", text)
    return int(found[1]) if found else 0
