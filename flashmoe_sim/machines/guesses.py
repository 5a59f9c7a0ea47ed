"""The speed of RAM that was not named, from its size and from what a CPU takes."""

from __future__ import annotations

from flashmoe_sim.io.errors import Conflict
from flashmoe_sim.machines.estimates import Estimated, estimate, estimates
from flashmoe_sim.machines.machine import Quantity
from flashmoe_sim.machines.parts import Part, catalogue, memory_part

# JEDEC: the largest unregistered modules have 8, 32 and 64 GB. A desktop has two channels with two modules each, so
# that more RAM is in a workstation or a server.
DESKTOP_GIB = {"ddr3": 32.0, "ddr4": 128.0, "ddr5": 256.0}


def ram_by_size(ram_gib: float, generation: str, gpu: Part | None = None) -> Quantity:
    """The nominal bandwidth of RAM whose speed nobody gave. generation: such as ddr4, or empty if unknown."""
    if generation:
        desktop = ram_gib <= DESKTOP_GIB[generation]
        fewest = 1 if ram_gib <= 32 else 2
        channels = (fewest, 2, 2) if desktop else estimate("ram.server_channels", generation).ends
        speeds = estimate("ram.mt_s", generation).ends
        lo, value, hi = (speed * 8 * n / 1000 for speed, n in zip(speeds, channels, strict=True))
        why = f"{channels[1]} channels of {generation.upper()}, whose speed is not given"
    else:
        found = _by_size(ram_gib, gpu)
        (lo, value, hi), why = found.ends, found.source
    source = f"no memory and no CPU given, but {ram_gib:g} GiB: {why}"
    return Quantity(value, lo, hi, source, "nominal; by the largest modules and the channels that were sold", True)


def _by_size(ram_gib: float, gpu: Part | None) -> Estimated:
    new = gpu is not None and float(gpu.compute or 0) >= estimate("ram.ddr5_card").value
    if new and ram_gib <= DESKTOP_GIB["ddr4"]:
        return estimate("ram.gb_s_beside_ddr5_card")
    return next(found for most, found in estimates("ram.gb_s_by_size").items() if ram_gib <= float(most))


def with_generation(cpu: Part, generation: str) -> Part:
    """The best memory of a CPU, or the usual one of a generation on as many channels.

    Raises BadInput for a generation that the CPU does not take.
    """
    best = catalogue()[cpu.memory]
    if best.name.startswith(generation):
        return best
    either = cpu.title.startswith("Intel Core i") and best.name.startswith("ddr5") and generation == "ddr4"
    if not either and generation not in best.name:
        takes = best.name.partition("-")[0]
        raise Conflict(f"{cpu.name} and {generation}: this CPU takes {takes}; leave {generation} out")
    return catalogue()[f"{generation}-{estimate('ram.mt_s', generation).value}x{split(best)[1]}"]


def with_channels(memory: Part, cpu: Part | None, ram_gib: float | None) -> Part:
    """Memory that was named without its channels: with all that the CPU has, or a server's if a desktop takes less."""
    generation = memory.name.partition("-")[0]
    speed, channels = split(memory)
    if cpu is not None and cpu.memory:
        channels = split(catalogue()[cpu.memory])[1]
    elif (ram_gib or 0) > DESKTOP_GIB.get(generation, float("inf")):
        channels = round(estimate("ram.server_channels", generation).value)
    return memory_part(f"{speed}x{channels}") or memory


def split(memory: Part) -> tuple[str, int]:
    """The kind and the number of channels from a name such as ddr4-3200x2."""
    kind, _, channels = memory.name.rpartition("x")
    return kind, int(channels)
