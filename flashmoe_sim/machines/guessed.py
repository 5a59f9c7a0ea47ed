"""What of a machine is guessed, and the sentence that asks for it."""

from __future__ import annotations

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.machines.parts import Parts, catalogue
from flashmoe_sim.machines.written import parse_parts

GUESSED = {
    "cpu.weights_gb_s": "the CPU",
    "memory.bandwidth_gb_s": "the speed of the RAM",
    "storage.read_gb_s": "the SSD",
}
# Examples of CPUs: for at most so many GiB of RAM, and for a laptop.
CPUS = ((128, "ryzen-5600"), (256, "ryzen-9950x"), (float("inf"), "epyc-7763"))
LAPTOP_CPU, SSD = "ryzen-7840hs", "nvme-gen4"


def guessed(machine: Machine) -> tuple[str, ...]:
    """What of CPU, RAM and SSD nobody named or measured, in words such as `the speed of the RAM`."""
    quantities = dict(machine.quantities())
    return tuple(words for path, words in GUESSED.items() if path in quantities and quantities[path].guessed)


def ask(machine: Machine) -> str:
    """A sentence that asks for what is guessed, with an example from the user's own parts; empty if nothing is."""
    names = guessed(machine)
    if not names:
        return ""
    listed = f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
    verb, them = ("are", "them") if len(names) > 1 else ("is", "it")
    statement = f"{listed[:1].upper()}{listed[1:]} {verb} guessed"
    try:
        parts = parse_parts(machine.name)
    except BadInput:
        return f"{statement}: measure {them} with `sim machine probe`, or write {them} in the machine's file."
    return f'{statement}: name {them}, as in `--machine "{" + ".join(_example(parts, names))}"`.'


def _example(parts: Parts, names: tuple[str, ...]) -> list[str]:
    """The user's parts, and one for each that is missing."""
    written, named = list(parts.names), parts.by_kind.get("cpu")
    cpu = named.name if named is not None else _cpu_like(parts)
    place = written.index(cpu) + 1 if named is not None else 1
    if GUESSED["cpu.weights_gb_s"] in names:
        written.insert(place, cpu)
        place += 1
    if GUESSED["memory.bandwidth_gb_s"] in names:
        written.insert(place, catalogue()[cpu].memory)
    if GUESSED["storage.read_gb_s"] in names:
        written.append(SSD)
    return written


def _cpu_like(parts: Parts) -> str:
    """A CPU that could be beside these parts."""
    gpu, memory = parts.by_kind.get("gpu"), parts.by_kind.get("memory")
    if gpu is not None and "Laptop" in gpu.title:
        return LAPTOP_CPU
    kind = parts.generation or (memory.name.partition("-")[0] if memory is not None else "")
    cpu = next(name for most, name in CPUS if (parts.ram_gib or 0) <= most)
    if kind and not catalogue()[cpu].memory.startswith(kind):
        return next((one.name for one in catalogue().values() if one.memory.startswith(f"{kind}-")), cpu)
    return cpu
