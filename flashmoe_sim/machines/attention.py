"""How fast a machine's GPU and CPU read the context's keys and values, if its file does not say."""

from __future__ import annotations

from dataclasses import replace

from flashmoe_sim.machines.machine import Compute, Machine, Quantity

# Shares of weights_gb_s: the lowest, the middle and the highest of published slopes of llama.cpp with 16-bit keys and
# values, where weights are read at 81% of a GPU's bandwidth and 54% of the RAM's.
CPU = "cpu"
SHARES = {
    "cuda": (0.5, 1.0, 1.1),
    "rocm": (0.35, 1.0, 1.15),
    "vulkan": (0.6, 1.05, 1.15),
    "metal": (0.25, 0.5, 1.05),
    CPU: (0.12, 0.7, 1.2),
}
UNKNOWN_API = (0.3, 0.8, 1.15)
MEMORY_SHARE = 0.8  # of the bandwidth of a memory, for machines whose fit leaves weights_gb_s out


def with_attention(machine: Machine) -> Machine:
    """The machine with `attention_gb_s` of its GPU and CPU, estimated where it is missing and can be."""
    return replace(
        machine,
        gpu=_attending(machine, machine.gpu, SHARES.get(machine.api, UNKNOWN_API), in_ram=machine.unified),
        cpu=_attending(machine, machine.cpu, SHARES[CPU], in_ram=True),
    )


def without_estimates(machine: Machine) -> Machine:
    """The machine without the `attention_gb_s` that `with_attention` would give it."""
    none = bare(machine)
    full = with_attention(none)
    return replace(
        machine,
        gpu=none.gpu if machine.gpu == full.gpu else machine.gpu,
        cpu=none.cpu if machine.cpu == full.cpu else machine.cpu,
    )


def bare(machine: Machine) -> Machine:
    """The machine without any `attention_gb_s`."""
    gpu, cpu = (None if unit is None else replace(unit, attention_gb_s=None) for unit in (machine.gpu, machine.cpu))
    return replace(machine, gpu=gpu, cpu=cpu)


def _attending(
    machine: Machine, unit: Compute | None, shares: tuple[float, float, float], *, in_ram: bool
) -> Compute | None:
    """The unit with its rate. in_ram: whether it reads the RAM, for units whose weights_gb_s is unknown."""
    if unit is None or unit.attention_gb_s is not None:
        return unit
    rate, of, by = unit.weights_gb_s, "weights_gb_s", 1.0
    if rate is None and in_ram and machine.memory is not None:
        rate, of, by = machine.memory.bandwidth_gb_s, "the memory's bandwidth", MEMORY_SHARE
    if rate is None:
        return unit
    ends = zip(shares, (rate.lo, rate.value, rate.hi), strict=True)
    lo, value, hi = (float(f"{by * share * at:.4g}") for share, at in ends)
    source = f"{100 * by * shares[1]:.3g}% of {of}, as published speeds at depth have it"
    return replace(
        unit, attention_gb_s=Quantity(value, lo, hi, source, "16-bit keys and values, one token at a time", True)
    )
