"""The gain of each single change of a machine, with the system sized again for the changed machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from flashmoe_sim.budget import own_memory
from flashmoe_sim.ceilings.hardware import CHANGES, TWICE
from flashmoe_sim.io.errors import Unsupported
from flashmoe_sim.io.sizes import three
from flashmoe_sim.machines.estimates import estimate
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.tune.change import Changed, WhatIf

RAM_GIB = (8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
GPU_GIB = (8, 12, 16, 24, 32, 48, 80, 96, 141, 192)
# A size counts as different if it is at least a tenth larger: the 121 GiB that a system leaves of 128 are 128.
LARGER = 1.1
NO_FASTER = 0.005
SMALLEST_GAIN, NAMED = 0.03, 5  # an answer names at most so many changes, each with at least this gain
# Changes of ceilings.hardware that one purchase combines.
FASTER = {
    "storage": ("twice storage.read_gb_s",),
    "the link to the GPU": ("twice link.pinned_gb_s", "twice link.pageable_gb_s"),
    "the GPU's memory": ("twice gpu.weights_gb_s",),
    "RAM": ("twice memory.copy_gb_s", "twice cpu.weights_gb_s"),
    "the host": ("half host.call_us", "half host.install_us"),
}
RATES = {
    "storage": "storage.read_gb_s",
    "the link to the GPU": "link.pinned_gb_s",
    "the GPU's memory": "gpu.weights_gb_s",
    "RAM": "memory.bandwidth_gb_s",
}


def levers(what_if: WhatIf, *, progress: Callable[[int, int], None] | None = None) -> list[Changed]:
    """The gain of every change of `changed_machines`, the largest first; of sizes with one speed only the smallest.

    Raises BadInput if none of them runs on the machine as it is.
    """
    machines, now = changed_machines(what_if.case.machine), what_if.now
    if now.tok_s is None:
        raise Unsupported(f"{what_if.case.machine.name}: {now.system.spec} does not run there: {now.why_not}")
    found = []
    for number, (change, machine) in enumerate(machines.items()):
        if progress is not None:
            progress(number, len(machines))
        found.append(what_if.changed(change, machine))
    found = sorted(_without_idle_sizes(found), key=lambda one: -one.gain)
    sure = [replace(one, after=what_if.sure(one.after, machines[one.change])) for one in named(found)]
    return [*sure, *found[len(sure) :]]


def named(found: Sequence[Changed]) -> list[Changed]:
    """The changes that an answer names, of those with the largest gains first."""
    return [one for one in found if one.gain >= SMALLEST_GAIN][:NAMED]


def _without_idle_sizes(found: Sequence[Changed]) -> list[Changed]:
    """Without sizes of a memory that are no faster than a smaller size, which comes before them."""
    return [
        one
        for number, one in enumerate(found)
        if not any(
            one.memory and one.memory == other.memory and one.gain <= other.gain + NO_FASTER for other in found[:number]
        )
    ]


def changed_machines(machine: Machine) -> dict[str, Machine]:
    """The machine with each single change that it has the quantities for, by the change in words.

    Sizes are the next usual ones and twice the present one; rates are twice the present ones. On a machine whose GPU
    shares the RAM, memory of another size is shared in the same proportion, and faster memory is faster for both.
    Several GPUs keep their size.
    """
    return {**_larger_ram(machine), **_larger_gpu(machine), **_faster(machine)}


def _larger_ram(machine: Machine) -> dict[str, Machine]:
    if machine.memory is None:
        return {}
    now = machine.memory.ram_gib.value
    paths, where = ["memory.ram_gib"], ""
    if machine.gpu is not None and machine.gpu.memory_gib is not None and not own_memory(machine):
        paths.append("gpu.memory_gib")
        where = ", another computer"
    return {
        f"{size} GiB of RAM instead of {_gib(now)}{where}": machine.scaled(dict.fromkeys(paths, size / now))
        for size in _next_and_twice(now, RAM_GIB)
    }


def _larger_gpu(machine: Machine) -> dict[str, Machine]:
    if machine.gpu is None or machine.gpu.memory_gib is None or not own_memory(machine) or machine.gpus > 1:
        return {}
    now, driver_gib = machine.gpu.memory_gib.value, estimate("gpu.driver_gib").value
    return {
        f"{size} GiB of GPU memory instead of {_gib(now + driver_gib)}": machine.scaled(
            {"gpu.memory_gib": (size - driver_gib) / now}
        )
        for size in _next_and_twice(now + driver_gib, GPU_GIB)
    }


def _next_and_twice(now: float, usual: Sequence[int]) -> list[int]:
    """The next usual size, and the first that is twice as large."""
    found = [[size for size in usual if size >= least * now][:1] for least in (LARGER, TWICE / LARGER)]
    return sorted({size for sizes in found for size in sizes})


def _faster(machine: Machine) -> dict[str, Machine]:
    quantities, found, shared = dict(machine.quantities()), {}, not own_memory(machine)
    for what, names in FASTER.items():
        factors = {path: factor for name in names for path, factor in CHANGES[name].factors.items()}
        if what == "RAM":
            factors |= dict.fromkeys(("memory.bandwidth_gb_s", *(["gpu.weights_gb_s"] if shared else [])), TWICE)
        factors = {path: factor for path, factor in factors.items() if path in quantities}
        if not factors or (what == "the GPU's memory" and shared):  # shared memory is RAM
            continue
        rate = quantities.get(RATES.get(what, ""))
        rates = "" if rate is None else f" ({three(TWICE * rate.value)} GB/s instead of {three(rate.value)})"
        found[f"{what} twice as fast{rates}"] = machine.scaled(factors)
    return found


def _gib(size: float) -> str:
    return f"{round(size, 1):g}"
