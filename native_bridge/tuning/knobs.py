"""What a search tries beside the settings of systems: threads, micro-batches, loading, and how two sockets are used."""

from __future__ import annotations

import os

from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.tune.objective import Objective
from flashmoe_sim.tune.trials import THREADS, UBATCH
from native_bridge.host import physical_cores
from native_bridge.tuning.program import MMAP, NUMA, Program

MICRO_BATCHES = ("512", "1024", "2048", "4096")


def values(program: Program, machine: Machine, objective: Objective) -> dict[str, tuple[str, ...]]:
    """The values of each knob that a program has on this machine, and that the objective depends on."""
    found = {THREADS: tuple(str(number) for number in _threads()), MMAP: ("yes", "no")}
    if objective.goal != "decode":
        found[UBATCH] = MICRO_BATCHES
    if machine.sockets > 1:
        found[NUMA] = ("distribute", "isolate", "numactl")
    return {name: of for name, of in found.items() if name in program.knobs}


def _threads() -> list[int]:
    """The cores, some fewer, and every thread of the processors."""
    cores, every = physical_cores(), os.cpu_count() or 1
    return sorted({max(cores // 2, 1), max(cores * 3 // 4, 1), max(cores - 1, 1), cores, every})
