"""The speed of RAM that was not named, from its size and from what a CPU takes."""

from __future__ import annotations

from flashmoe_sim.io.errors import Conflict
from flashmoe_sim.machines.machine import Quantity
from flashmoe_sim.machines.parts import Part, catalogue

# JEDEC: the largest unregistered modules have 8, 32 and 64 GB. A desktop has two channels with two modules each, so
# that more RAM is in a workstation or a server.
DESKTOP_GIB = {"ddr3": 32.0, "ddr4": 128.0, "ddr5": 256.0}
# Transfers a second, in millions: the slowest and the usual kind that are sold, and the fastest that is common.
SPEEDS = {"ddr3": (1066, 1600, 1866), "ddr4": (2133, 3200, 3600), "ddr5": (3600, 5600, 6400)}
SERVER_CHANNELS = {"ddr3": (3, 4, 4), "ddr4": (4, 8, 8), "ddr5": (4, 8, 12)}
# Nominal GB/s for at most so many GiB: lo, value and hi, and the reason.
BY_SIZE = (
    (32, (25, 51, 120), "from one channel of DDR4-3200 to soldered LPDDR5X; two of DDR4-3200 are common"),
    (44, (34, 64, 115), "two channels, from DDR4-2133 to DDR5-7200"),
    (48, (42, 83, 115), "two channels; modules of 24 GB are DDR5"),
    (88, (34, 64, 115), "two channels, from DDR4-2133 to DDR5-7200"),
    (96, (42, 83, 115), "two channels; modules of 48 GB are DDR5"),
    (128, (34, 64, 115), "two channels, from DDR4-2133 to DDR5-7200"),
    (256, (58, 90, 205), "four modules of DDR5 on two channels, from 3600 MT/s, or a workstation with up to eight"),
    (
        float("inf"),
        (68, 205, 540),
        "more than the 256 GiB that a desktop takes: a server, from four channels of DDR4-2133 to twelve of DDR5-5600; "
        "eight of DDR4-3200 are common",
    ),
)
DDR5_CARDS = 8.9  # compute capability: of 20 published desktops with such a card, 15 take DDR5 only, 2 DDR4 only
BESIDE_SUCH_A_CARD = (42, 83, 115), "two channels; most desktops with so new a card have DDR5"


def ram_by_size(ram_gib: float, generation: str, gpu: Part | None = None) -> Quantity:
    """The nominal bandwidth of RAM whose speed nobody gave. generation: such as ddr4, or empty if unknown."""
    if generation:
        desktop = ram_gib <= DESKTOP_GIB[generation]
        fewest = 1 if ram_gib <= 32 else 2
        channels = (fewest, 2, 2) if desktop else SERVER_CHANNELS[generation]
        lo, value, hi = (speed * 8 * n / 1000 for speed, n in zip(SPEEDS[generation], channels, strict=True))
        why = f"{channels[1]} channels of {generation.upper()}, whose speed is not given"
    elif gpu is not None and float(gpu.compute or 0) >= DDR5_CARDS and ram_gib <= DESKTOP_GIB["ddr4"]:
        (lo, value, hi), why = BESIDE_SUCH_A_CARD
    else:
        (lo, value, hi), why = next((range_, why) for most, range_, why in BY_SIZE if ram_gib <= most)
    source = f"no memory and no CPU given, but {ram_gib:g} GiB: {why}"
    return Quantity(value, lo, hi, source, "nominal; by the largest modules and the channels that were sold", True)


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
    return catalogue()[f"{generation}-{SPEEDS[generation][1]}x{split(best)[1]}"]


def with_channels(memory: Part, cpu: Part | None, ram_gib: float | None) -> Part:
    """Memory that was named without its channels: with all that the CPU has, or a server's if a desktop takes less."""
    generation = memory.name.partition("-")[0]
    speed, channels = split(memory)
    if cpu is not None:
        channels = split(catalogue()[cpu.memory])[1]
    elif (ram_gib or 0) > DESKTOP_GIB.get(generation, float("inf")):
        channels = SERVER_CHANNELS[generation][1]
    return catalogue().get(f"{speed}x{channels}", memory)


def split(memory: Part) -> tuple[str, int]:
    """The kind and the number of channels from a name such as ddr4-3200x2."""
    kind, _, channels = memory.name.rpartition("x")
    return kind, int(channels)
