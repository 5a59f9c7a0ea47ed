"""Two sockets on a board: how an engine can use them, and what its CPU computes at then."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from functools import cache
from importlib import resources

from flashmoe_sim.machines.estimates import estimate
from flashmoe_sim.machines.machine import Machine, Quantity
from flashmoe_sim.machines.parts import Part

BOUND, INTERLEAVED, MIRRORED, SPLIT = MODES = ("bound", "interleaved", "mirrored", "split")
IN_WORDS = {
    BOUND: "threads and memory on one socket",
    INTERLEAVED: "threads on both sockets, memory interleaved between them",
    MIRRORED: "threads on both sockets, each with a copy of the weights",
    SPLIT: "each socket with its part of every expert",
}
SCALED = ("cpu.weights_gb_s", "cpu.attention_gb_s")
CROSSING = 4  # interleaved over two sockets, a quarter of all bytes crosses the link each way


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


def times(machine: Machine, mode: str) -> tuple[float, float, float]:
    """How many times as fast as one the sockets of a machine read weights in a mode of MODES: lo, value and hi.

    Interleaved, twice as fast, or as the link lets pass what crosses it.
    """
    if mode == BOUND:
        return 1.0, 1.0, 1.0
    most, memory = float(machine.sockets), machine.memory
    if mode != INTERLEAVED or memory is None or memory.socket_link_gb_s is None:
        return most, most, most
    link, own = memory.socket_link_gb_s, memory.bandwidth_gb_s.value
    lo, value, hi = (min(most, CROSSING * gb_s / own) for gb_s in (link.lo, link.value, link.hi))
    return lo, value, hi


def cores(machine: Machine, mode: str) -> int:
    """The cores that compute, 0 if unknown."""
    return machine.cpu_cores * (1 if mode == BOUND else machine.sockets)


def on_sockets(machine: Machine, mode: str) -> Machine:
    """A machine with two sockets as one whose CPU computes as they do together in a mode of MODES.

    Unless they are alone, sockets wait for each other in each layer that the CPU computes.
    """
    one = replace(machine, sockets=1, socket_mode="", cpu_cores=cores(machine, mode))
    if mode == BOUND:
        return one
    by, quantities = times(machine, mode), dict(machine.quantities())
    for path in SCALED:
        if (old := quantities.get(path)) is not None:
            ends = old.lo * by[0], old.value * by[1], old.hi * by[2]
            one = one.with_quantity(path, _with(old, ends, f"{by[1]:.3g} times one socket, {IN_WORDS[mode]}"))
    path, wait = "cpu.layer_us" if machine.gpu is None else "host.call_us", estimate("sockets.wait_us", mode)
    old = quantities[path]
    ends = old.lo + wait.lo, old.value + wait.value, old.hi + wait.hi
    return one.with_quantity(path, _with(old, ends, f"{wait.value:g} more for two sockets ({wait.source})"))


def _with(old: Quantity, ends: tuple[float, float, float], why: str) -> Quantity:
    lo, value, hi = (float(f"{end:.4g}") for end in ends)
    return replace(old, lo=lo, value=value, hi=hi, source=f"{why}; {old.source}", estimated=True)
