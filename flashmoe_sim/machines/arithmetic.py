"""How fast the cores of a CPU compute a type of weights: types of few bits slower than RAM delivers them."""

from __future__ import annotations

import re
from functools import lru_cache
from math import inf

from flashmoe_sim.machines.estimates import estimate, estimates
from flashmoe_sim.machines.machine import WEIGHT_BYTES, Compute, Machine

LLAMA_CPP, IK = "llama.cpp", "ik_llama.cpp"
# By a part of the program's name, tried in this order.
KERNELS = {IK: IK, LLAMA_CPP: LLAMA_CPP, "ollama": LLAMA_CPP, "BigMoeOnEdge": LLAMA_CPP}
BYTE = 8.5 / 8  # of a weight of 8 bits, with its scale
_BITS = re.compile(r"fp?(16|32)|(?:q|int|fp)(\d)|(\d)bit|(\d+(?:\.\d+)?)bpw")
# Types and mixes that were not measured, and the measured type whose rate they have: of about as many bits, of the same
# kind. ik_llama.cpp's other types have the letters of their neighbours in their names: iq4_k, iq4_ks and q4_k.
NEIGHBOURS = {
    r"q4_[1x]": "q4_0",
    r"q5_[01]|q6_0|apex-balanced": "q5_k",
    r"iq1_kt|apex-micro": "iq1_m",
    r"apex-quality": "iq4_xs",
    r"apex-compact": "q3_k",
    r"apex-mini": "iq2_s",
    r"apex-nano": "iq2_xxs",
}


def most_gb_s(machine: Machine, quant: str, program: str) -> float:
    """The rate in GB/s at which all cores compute a quantization; inf if the cores or its type are not known.

    A type that was not measured has the rate of its neighbour; MXFP4, TQ1_0 and other formats' types have none, so that
    RAM alone limits them.

    quant: the name of a quantization, or types of a file's tensors, the most common first. program: the engine; rates
    are known for llama.cpp and its forks only.
    """
    return _most_gb_s(machine.cpu_cores, machine.cpu_features or (), quant.lower(), program)


@lru_cache
def _most_gb_s(cores: int, features: tuple[str, ...], quant: str, program: str) -> float:
    if not cores or not {"avx2", "avx512", "neon"} & {*features}:
        return inf
    kernels = next((name for part, name in KERNELS.items() if part in program), None)
    if kernels is None:
        return inf
    rates = estimates(f"cpu.core_gb_s.{'neon' if 'neon' in features else 'avx512'}.{kernels}")
    known = re.search("|".join(sorted(rates, key=len, reverse=True)), quant)
    found = known[0] if known else next((other for one, other in NEIGHBOURS.items() if re.search(one, quant)), "")
    if not found:
        return inf
    times = 1.0 if {"avx512", "neon"} & {*features} else estimate("cpu.avx2").value
    return estimate("cpu.together").value * times * cores * rates[found].value


def knee_tokens(unit: Compute, weight_bytes: float) -> float:
    """The largest batch, in tokens, that takes no longer than one token with weights of so many bytes, in the mean.

    Larger weights take longer to read, but up to 8 bits no longer to compute, so 8-bit weights have about twice the
    knee of 4-bit ones. Of 16-bit weights a unit computes half as many in the same time.
    """
    wide = min(max((weight_bytes - BYTE) / (2 - BYTE), 0.0), 1.0)  # the share of 16 bits beside 8
    return max(unit.knee_tokens.value * weight_bytes / WEIGHT_BYTES / (1 + wide), 1.0)


@lru_cache
def weight_bytes(quant: str) -> float:
    """Bytes of a weight, by the bits in the name of its quantization and half a bit of scales; 4.5 bits if not known.

    quant: the name of a quantization, or types of a file's tensors, the most common first.
    """
    found = _BITS.search(quant.lower())
    if found is None:
        return WEIGHT_BYTES
    bits = float(next(filter(None, found.groups())))
    return (bits + 0.5 * (bits < 16)) / 8
