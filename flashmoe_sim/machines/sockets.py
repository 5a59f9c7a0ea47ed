"""Two sockets on a board: how an engine can use them, and what its CPU computes at then."""

from __future__ import annotations

import math
import re
import tomllib
from dataclasses import replace
from functools import cache
from importlib import resources

from flashmoe_sim.machines.estimates import Estimated, estimate
from flashmoe_sim.machines.machine import Machine, Quantity
from flashmoe_sim.machines.parts import Part

BOUND, INTERLEAVED, MIRRORED, SPLIT, ISOLATED = MODES = ("bound", "interleaved", "mirrored", "split", "isolated")
IN_WORDS = {
    BOUND: "threads and memory on one socket",
    INTERLEAVED: "threads on both sockets, memory interleaved between them",
    MIRRORED: "threads on both sockets, each with a copy of the weights",
    SPLIT: "each socket with its part of every expert",
    ISOLATED: "threads on one socket, memory wherever it came to lie",
}
ALONE = (BOUND, ISOLATED)  # modes in which the cores of one socket compute
SCALED = ("cpu.weights_gb_s", "cpu.attention_gb_s")
EVEN = 4  # interleaved over two, a socket reads a quarter of all bytes from the other, and both links' ways are used


@cache
def _links() -> list[tuple[re.Pattern[str], Quantity]]:
    text = resources.files("flashmoe_sim.machines").joinpath("parts", "sockets.toml").read_text("utf-8")
    return [
        (re.compile(one["names"]), Quantity(**one["gb_s"], source=one["source"], condition="nominal, one way"))
        for one in tomllib.loads(text).values()
    ]


def link_between(cpu: Part) -> Quantity | None:
    """The nominal rate in GB/s at which one of two such processors reads the other's memory; None if it stands alone.

    Source: `parts/sockets.toml`.
    """
    return next((link for names, link in _links() if names.fullmatch(cpu.name)), None)


def times(machine: Machine, mode: str) -> Estimated:
    """How many times as fast as one bound socket the CPU of a machine with two reads weights in a mode of MODES.

    Interleaved, it is a share of what memory and link deliver: twice a socket's bandwidth, or as much as the link lets
    pass if a quarter of all bytes cross it each way.
    """
    found = estimate("sockets", mode)
    memory = machine.memory
    if mode != INTERLEAVED or memory is None or memory.socket_link_gb_s is None:
        return found
    link, own = memory.socket_link_gb_s, memory.bandwidth_gb_s.value
    least, passes, most = (min(machine.sockets, EVEN * gb_s / own) for gb_s in (link.lo, link.value, link.hi))
    value = found.value * passes
    below = math.hypot(math.log(found.value / found.lo), math.log(passes / least))  # both are independent
    above = math.hypot(math.log(found.hi / found.value), math.log(most / passes))
    return replace(found, lo=value * math.exp(-below), value=value, hi=value * math.exp(above))


def on_sockets(machine: Machine, mode: str) -> Machine:
    """A machine with two sockets as one whose CPU computes as they do together in a mode of MODES."""
    one = replace(machine, sockets=1, socket_mode="")
    if mode == BOUND:
        return one
    if mode not in ALONE:
        one = replace(one, cpu_cores=machine.sockets * machine.cpu_cores)
    by, quantities = times(machine, mode), dict(machine.quantities())
    for path in SCALED:
        if (old := quantities.get(path)) is not None:
            ends = (old.lo * by.lo, old.value * by.value, old.hi * by.hi)
            lo, value, hi = (float(f"{end:.4g}") for end in ends)
            source = f"{by.value:.3g} times one socket ({IN_WORDS[mode]}: {by.source}); {old.source}"
            one = one.with_quantity(path, replace(old, lo=lo, value=value, hi=hi, source=source, estimated=True))
    return one
