"""Several equal machines that a network joins, as llama.cpp's rpc-server uses them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

from flashmoe_sim.io.errors import Conflict, Incomplete, OutOfRange, UnknownName, shown
from flashmoe_sim.machines.estimates import Estimated, estimate
from flashmoe_sim.machines.machine import Machine, Network, Quantity
from flashmoe_sim.machines.parts import MOST_GPUS
from flashmoe_sim.machines.written import plain

# Nominal. Two computers over USB4 reached 9.4 Gb/s (visorcraft/strix-halo-llm-perf, BENCHMARKS.md@1c2980b5).
GBIT_S = {f"{rate}gbe": float(rate) for rate in (1, 2.5, 5, 10, 25, 40, 50, 100, 200, 400)} | {"usb4": 10.0}
_NETWORKS = {plain(name): name for name in GBIT_S}
_SEVERAL = re.compile(r"\s*(\d{1,3}) ?[x\u00d7] ?(\S.*?)\s+over\s+(\S.*?)\s*", re.IGNORECASE)


class Several(NamedTuple):
    """How many machines, each as it is written, and their network."""

    number: int
    each: str
    network: str


def several_in(text: str) -> Several | None:
    """The machines that a text such as `2x gb10-128 over 10gbe` joins; None if it joins none."""
    found = _SEVERAL.fullmatch(text)
    return None if found is None else Several(int(found[1]), found[2], found[3])


def joined(one: Machine, several: Several) -> Machine:
    """Several machines as one, whose GPUs hold consecutive layers: their memory together, and the speed of one.

    Raises BadInput for an unknown network, and for machines that cannot be joined so.
    """
    number, network = several.number, _NETWORKS.get(plain(several.network), "")
    if not network:
        raise UnknownName(f"unknown network {shown(several.network)}; known: {', '.join(GBIT_S)}")
    name = f"{number}x {one.name} over {network}"
    if one.machines > 1:
        raise Conflict(f"{name}: machines within machines; give the number once")
    if one.gpu is None or one.gpu.memory_gib is None or one.memory is None:
        raise Incomplete(f"{name}: several machines are known with GPUs only; add one, or give one machine")
    if not 2 <= number <= MOST_GPUS // one.gpus:
        raise OutOfRange(f"{name}: expected 2 to {MOST_GPUS // one.gpus} machines, since {MOST_GPUS} GPUs are the most")
    memory = replace(
        one.memory, ram_gib=one.memory.ram_gib.times(number), reserve_gib=one.memory.reserve_gib.times(number)
    )
    return replace(
        one,
        name=name,
        title=f"{number}x {one.title} over {network}",
        memory=memory,
        gpu=replace(one.gpu, memory_gib=one.gpu.memory_gib.times(number)),
        gpus=number * one.gpus,
        cards=number * one.cards,
        machines=number,
        network=Network(
            rate_gb_s=_quantity(estimate("network.rate_share"), GBIT_S[network] / 8, f" of {network}"),
            hop_us=_quantity(estimate("network.hop_us"), 1.0, ""),
        ),
    )


def _quantity(known: Estimated, times: float, of: str) -> Quantity:
    lo, value, hi = (float(f"{times * end:.4g}") for end in known.ends)
    return Quantity(value, lo, hi, f"{known.source}{of}", known.condition or known.unit, estimated=True)
