"""How fast a machine's GPU and CPU read the context's keys and values, if its file does not say."""

from __future__ import annotations

from dataclasses import replace

from flashmoe_sim.machines.estimates import Estimated, estimate
from flashmoe_sim.machines.machine import Compute, Machine, Quantity

CPU = "cpu"


def with_attention(machine: Machine) -> Machine:
    """The machine with `attention_gb_s` of its GPU and CPU, estimated where it is missing and can be."""
    return replace(
        machine,
        gpu=_attending(machine, machine.gpu, estimate("attention.share", machine.api), in_ram=machine.unified),
        cpu=_attending(machine, machine.cpu, estimate("attention.share", CPU), in_ram=True),
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


def _attending(machine: Machine, unit: Compute | None, share: Estimated, *, in_ram: bool) -> Compute | None:
    """The unit with its rate. in_ram: whether it reads the RAM, for units whose weights_gb_s is unknown."""
    if unit is None or unit.attention_gb_s is not None:
        return unit
    rate, of, by = unit.weights_gb_s, "weights_gb_s", 1.0
    if rate is None and in_ram and machine.memory is not None:
        rate, of, by = machine.memory.bandwidth_gb_s, "the memory's bandwidth", estimate("attention.memory_share").value
    if rate is None:
        return unit
    ends = zip(share.ends, (rate.lo, rate.value, rate.hi), strict=True)
    lo, value, hi = (float(f"{by * end * at:.4g}") for end, at in ends)
    source = f"{100 * by * share.value:.3g}% of {of}, as published speeds at depth have it"
    return replace(
        unit, attention_gb_s=Quantity(value, lo, hi, source, "16-bit keys and values, one token at a time", True)
    )
