"""What of a machine was given, came from a preset, is assumed or guessed, in one sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.machines.compose import compose_parts, link_of
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.machine import SYSTEMS, Machine, Quantity
from flashmoe_sim.machines.parts import DESKTOP, Part, Parts, card, catalogue
from flashmoe_sim.machines.table import PRESETS
from flashmoe_sim.machines.unnamed_memory import split
from flashmoe_sim.machines.written import parse_parts

GUESSED = {
    "cpu.weights_gb_s": "the CPU",
    "memory.bandwidth_gb_s": "the speed of the RAM",
    "storage.read_gb_s": "the SSD",
}
# What decides the speed beside the GPU, and the kinds of parts that determine it.
RATES = {
    "memory.bandwidth_gb_s": ("RAM at", ("memory", "chip")),
    "cpu.weights_gb_s": ("a CPU at", ("cpu", "chip")),
    "link.pinned_gb_s": ("a link of", ("link",)),
    "storage.read_gb_s": ("storage of", ("storage",)),
}
# Examples of CPUs: for at most so many GiB of RAM, and for a laptop.
CPUS = ((128, "ryzen-5600"), (256, "ryzen-9950x"), (float("inf"), "epyc-7763"))
UNSEEN = {"GPU": "rtx-3060", "RAM": "64GiB"}  # how each is written, for the advice
LAPTOP_CPU, SSD, ANY_MEMORY = "ryzen-7840hs", "nvme-gen4", "ddr4-3200x2"


def guessed(machine: Machine) -> tuple[str, ...]:
    """What of CPU, RAM and SSD nobody named or measured, in words such as `the speed of the RAM`."""
    return tuple(GUESSED[path] for path in _guesses(machine))


def basis(machine: Machine) -> str:
    """What was given, what a preset brings, what is assumed, and a request for what is guessed, with an example.

    Empty if every part is named, and for a file of the user's own that guesses nothing.
    """
    if brought := _brought(machine):
        return brought
    guesses = _guesses(machine)
    names = tuple(GUESSED[path] for path in guesses)
    ranges = _listed([f"{GUESSED[path]} ({one.lo:.3g} to {one.hi:.3g} GB/s)" for path, one in guesses.items()])
    them = "them" if len(names) > 1 else "it"
    try:
        parts = parse_parts(machine.name)
        assumed = list(_assumed(machine, parts))
    except BadInput:
        how = f"measure {them} with `sim machine probe`, or write {them} in the machine's file"
        return f"Guessed: {ranges}; {how}." if names else ""
    if not names and not assumed:
        return ""
    clauses = [f"Given: {_listed(parts.names)}", *([f"assumed: {_listed(assumed)}"] if assumed else [])]
    if names:
        example = " + ".join(_example(parts, names))
        clauses.append(f'guessed: {ranges}; name {them}, as in `--machine "{example}"`')
    return f"{'; '.join(clauses)}."


def uncounted(machine: Machine) -> str:
    """What this computer may have that could not be seen or used, and how to give it; empty if there is none."""
    if not machine.unseen:
        return ""
    examples = [UNSEEN[name] for name in UNSEEN if any(one.startswith(f"{name}:") for one in machine.unseen)]
    give = f' To count what it has, name it: --machine "{" + ".join(["this", *examples])}".' if examples else ""
    return f"{'. '.join(machine.unseen)}.{give}"


def heading(machine: Machine) -> str:
    """The machine's title; of a card's preset behind its name and the RAM that it assumes, which nobody named."""
    name, _, system = machine.name.partition(" + ")
    if card(name) is None or not _brought(machine) or machine.memory is None:
        return machine.title
    kind = re.search(r"(?:LP)?DDR\d", machine.title)
    other = f"{name} + {'64' if machine.memory.ram_gib.value != 64 else '32'}GiB{system and f' + {system}'}"
    ram = f"{machine.memory.ram_gib.value:g} GiB of {kind[0] if kind else 'RAM'}"
    return f"{machine.name}, {ram} assumed (give {other} for another size): {machine.title}"


def notes(machine: Machine) -> tuple[str, ...]:
    """What a user of this machine's seconds must know, the basis first."""
    said = tuple(f"{path} is a guess" for path in _guesses(machine))
    return (
        *(sentence.removesuffix(".") for sentence in (basis(machine), uncounted(machine)) if sentence),
        *(note for note in machine.notes if not any(guess in note for guess in said)),
    )


def _guesses(machine: Machine) -> dict[str, Quantity]:
    quantities = dict(machine.quantities())
    return {path: quantities[path] for path in GUESSED if path in quantities and quantities[path].guessed}


def _brought(machine: Machine) -> str:
    """What a preset brings beside its GPU or chip; empty for another machine, and for a preset's edited file."""
    name, _, system = machine.name.partition(" + ")
    if name not in PRESETS or system not in ("", *SYSTEMS):
        return ""
    own, now = dict(load_machine(name).quantities()), dict(machine.quantities())
    rates = {path: words for path, (words, _) in RATES.items() if path in own}
    if machine.learnt is None and any(own[path] != now.get(path) for path in ("memory.ram_gib", *rates)):
        return ""
    each = [f"{words} {own[path].value:.3g} GB/s" for path, words in rates.items()]
    ram = f"{own['memory.ram_gib'].value:.3g} GiB of {each[0]}"
    return f"From the preset {name}: {_listed([ram, *each[1:]])}; if yours has others, name its parts."


def _assumed(machine: Machine, parts: Parts) -> Iterator[str]:
    """Parts that were not named, whose numbers follow from the others.

    Raises BadInput if the parts make no machine.
    """
    gpu, cpu = parts.by_kind.get("gpu"), parts.by_kind.get("cpu")
    if cpu is not None and cpu.form == "laptop" and gpu is not None and gpu.form == "laptop" and _of_desktop(gpu):
        yield f"the laptop's card beside a laptop's CPU (add {DESKTOP} for {_of_desktop(gpu)})"
    made, now = dict(compose_parts(parts).quantities()), dict(machine.quantities())
    for path, (words, kinds) in RATES.items():
        named = any(kind in parts.by_kind for kind in kinds)
        if named or path not in made or made[path] != now.get(path) or made[path].guessed:
            continue
        yield f"a {link_of(parts).name} link" if "link" in kinds else f"{words} {made[path].value:.3g} GB/s"


def _of_desktop(card: Part) -> str:
    """The name of the desktop's card with the name of a laptop's; empty if there is none."""
    name = card.name.partition("-laptop")[0]
    return name if name in catalogue() else ""


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def _example(parts: Parts, names: tuple[str, ...]) -> list[str]:
    """The user's parts, and one for each that is missing."""
    written, named = list(parts.names), parts.by_kind.get("cpu")
    cpu = named.name if named is not None else _cpu_like(parts)
    place = written.index(f"{parts.times(named)}{cpu}") + 1 if named is not None else 1
    if GUESSED["cpu.weights_gb_s"] in names:
        written.insert(place, cpu)
        place += 1
    if GUESSED["memory.bandwidth_gb_s"] in names:
        kind, most = split(catalogue()[catalogue()[cpu].memory or ANY_MEMORY])
        written.insert(place, f"{kind}x{min(parts.channels or most, most)}")
        written = [name for name in written if name != parts.of_channels]
    if GUESSED["storage.read_gb_s"] in names:
        given = parts.by_kind.get("storage")
        written = [name for name in written if given is None or name != given.name]
        written.append(SSD)
    return written


def _cpu_like(parts: Parts) -> str:
    """A CPU that could be beside these parts."""
    gpu, memory = parts.by_kind.get("gpu"), parts.by_kind.get("memory")
    if gpu is not None and "Laptop" in gpu.title:
        return LAPTOP_CPU
    kind = parts.generation or (memory.name.partition("-")[0] if memory is not None else "")
    cpu = next(name for most, name in CPUS if (parts.ram_gib or 0) <= most and (parts.channels <= 2 or most > 256))
    if kind and not catalogue()[cpu].memory.startswith(kind):
        return next((one.name for one in catalogue().values() if one.memory.startswith(f"{kind}-")), cpu)
    return cpu
