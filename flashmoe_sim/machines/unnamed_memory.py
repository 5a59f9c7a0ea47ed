"""The speed of RAM that was not named, from its size and from what a CPU takes."""

from __future__ import annotations

import re

from flashmoe_sim.io.errors import Conflict
from flashmoe_sim.machines.estimates import Estimated, estimate, estimates
from flashmoe_sim.machines.machine import Quantity
from flashmoe_sim.machines.parts import Part, catalogue, memory_part

# JEDEC: the largest unregistered modules have 8, 32 and 64 GB. A desktop has two channels with two modules each, so
# that more RAM is in a workstation or a server.
DESKTOP_GIB = {"ddr3": 32.0, "ddr4": 128.0, "ddr5": 256.0}
SOLDERED = ("lpddr4", "lpddr4x", "lpddr5", "lpddr5x")  # of laptops and small computers, on two channels at most

# Processors that take the generation of memory before their best one too, by that.
TAKES_OLDER = {
    5: re.compile(r"Intel (?:Core i|Processor N|Core 3 N)"),
    4: re.compile(r"Intel Core i\d-[67]\d{3}|Intel Xeon E5-\d+\w? v3"),
}
_GENERATION = re.compile(r"ddr(\d)")


def ram_by_size(ram_gib: float, generation: str, gpu: Part | None = None, channels: int = 0) -> Quantity:
    """The nominal bandwidth of RAM whose speed nobody gave.

    generation: such as ddr4, or empty if unknown. channels: 0 if unknown.
    """
    if generation:
        desktop = generation in SOLDERED or ram_gib <= DESKTOP_GIB[generation]
        fewest = 1 if ram_gib <= 32 else 2
        likely = (fewest, 2, 2) if desktop else estimate("ram.server_channels", generation).ends
        number = (channels,) * 3 if channels else likely
        speeds = estimate("ram.mt_s", generation).ends
        lo, value, hi = (speed * 8 * n / 1000 for speed, n in zip(speeds, number, strict=True))
        why = f"{number[1]:g} channels of {generation.upper()}, whose speed is not given"
    elif channels:
        found = _of_a_channel(channels, ram_gib, gpu)
        lo, value, hi = (channels * end for end in found.ends)
        why = f"{channels} channels, of each {found.source}"
    else:
        found = _by_size(ram_gib, gpu)
        (lo, value, hi), why = found.ends, found.source
    source = f"no memory and no CPU given, but {ram_gib:g} GiB: {why}"
    return Quantity(value, lo, hi, source, "nominal; by the largest modules and the channels that were sold", True)


def _of_a_channel(channels: int, ram_gib: float, gpu: Part | None) -> Estimated:
    """What one of so many channels has."""
    if channels <= 2 and _is_new(gpu) and ram_gib <= DESKTOP_GIB["ddr4"]:
        return estimate("ram.gb_s_of_a_channel_beside_ddr5_card")
    return next(found for most, found in estimates("ram.gb_s_of_a_channel").items() if channels <= float(most))


def _is_new(gpu: Part | None) -> bool:
    """Whether a card is so new that most computers with it have DDR5."""
    return gpu is not None and float(gpu.compute or 0) >= estimate("ram.ddr5_card").value


def _by_size(ram_gib: float, gpu: Part | None) -> Estimated:
    if _is_new(gpu) and ram_gib <= DESKTOP_GIB["ddr4"]:
        return estimate("ram.gb_s_beside_ddr5_card")
    return next(found for most, found in estimates("ram.gb_s_by_size").items() if ram_gib <= float(most))


def with_generation(cpu: Part, generation: str, channels: int = 0) -> Part:
    """The best memory of a CPU, or the usual one of a generation, on all channels or on fewer. channels: 0 for all.

    Raises BadInput for a generation that the CPU does not take, and for more channels than it has.
    """
    best = catalogue()[cpu.memory]
    kind, most = split(best)
    _check_channels(cpu, channels)
    if not best.name.startswith(generation):
        check_generation(cpu, generation)
        kind = f"{generation}-{estimate('ram.mt_s', generation).value}"
    found = memory_part(f"{kind}x{channels or (min(most, 2) if generation in SOLDERED else most)}")
    assert found is not None
    return found


def check_memory(cpu: Part, memory: Part) -> None:
    """Raise BadInput if a CPU does not take this memory, or has fewer channels.

    Channels of soldered memory are narrower than a CPU's, and are not compared.
    """
    check_generation(cpu, memory.name)
    kind, _, channels = memory.name.rpartition("x")
    if channels.isdecimal() and not kind.startswith(SOLDERED):
        _check_channels(cpu, int(channels))


def _check_channels(cpu: Part, channels: int) -> None:
    _, most = split(catalogue()[cpu.memory])
    if channels > most:
        raise Conflict(f"{cpu.name} and {channels} channels: this CPU has the rate of {most}; write {most} channels")


def check_generation(cpu: Part, memory: str) -> None:
    """Raise BadInput if a CPU does not take this memory, of which DDR and LPDDR of one generation are the same.

    memory: a name such as ddr4-3200x2, or a generation.
    """
    if not takes(cpu, memory):
        best = split(catalogue()[cpu.memory])[0].partition("-")[0]
        raise Conflict(f"{cpu.name} and {memory}: this CPU takes {best}; leave {memory} out")


def takes(cpu: Part, memory: str) -> bool:
    """Whether a CPU whose memory is known takes this one, which may be a rate alone.

    memory: a name such as ddr4-3200x2, a generation, or 51.2GB/s.
    """
    given, best = (_GENERATION.search(f"ddr5 {name}" if "mrdimm" in name else name) for name in (memory, cpu.memory))
    if given is None or best is None:
        return True
    older = TAKES_OLDER.get(int(best[1]))
    return given[1] == best[1] or (int(given[1]) == int(best[1]) - 1 and bool(older and older.match(cpu.title)))


def with_channels(memory: Part, cpu: Part | None, ram_gib: float | None, given: int = 0) -> Part:
    """Memory that was named without its channels: with all that the CPU has, or a server's if a desktop takes less.

    given: channels that were named apart; 0 if they were not.
    """
    generation = memory.name.partition("-")[0]
    speed, channels = split(memory)
    if given:
        channels = given
    elif cpu is not None and cpu.memory:
        channels = split(catalogue()[cpu.memory])[1]
    elif (ram_gib or 0) > DESKTOP_GIB.get(generation, float("inf")):
        channels = round(estimate("ram.server_channels", generation).value)
    return memory_part(f"{speed}x{channels}") or memory


def split(memory: Part) -> tuple[str, int]:
    """The kind and the number of channels from a name such as ddr4-3200x2."""
    kind, _, channels = memory.name.rpartition("x")
    return kind, int(channels)
