"""What a search tries beside the settings of systems: threads, micro-batches, loading, and how two sockets are used."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.systems.base import Case, System
from flashmoe_sim.tune.kv_types import WEIGHED, with_type
from flashmoe_sim.tune.objective import Objective
from flashmoe_sim.tune.trials import THREADS, UBATCH
from native_bridge.host import core_mask, physical_cores
from native_bridge.tuning.program import CORES, DRAFT, KV, MMAP, NUMA, Program

MICRO_BATCHES = ("512", "1024", "2048", "4096")
FEWER = (0.75, 0.5)  # of the model's experts a token
DRAFTED = (1, 2, 3, 4, 6, 8, 12, 16)


def values(program: Program, machine: Machine, objective: Objective) -> dict[str, tuple[str, ...]]:
    """The values of each knob that a program has on this machine, and that the objective depends on."""
    found = {THREADS: tuple(str(number) for number in _threads()), MMAP: ("yes", "no")}
    if objective.goal != "decode":
        found[UBATCH] = MICRO_BATCHES
    if machine.sockets > 1:
        found[NUMA] = ("distribute", "isolate", "numactl")
    if core_mask(2):
        found[CORES] = ("", "pinned")
    return {name: of for name, of in found.items() if name in program.knobs}


def cases(case: Case, *, may_change_text: bool) -> dict[tuple[str, str], Case]:
    """The cases that other types of keys and values make, if they may, and other numbers of drafted tokens."""
    found = {}
    if may_change_text:
        for kv_type in WEIGHED:
            if kv_type != case.kv_type and (other := with_type(case, kv_type)):
                found[KV, kv_type] = other
    if case.drafts is not None:
        for count in (0, *(one for one in DRAFTED if one < case.drafts.count)):
            found[DRAFT, str(count)] = replace(case, drafts=replace(case.drafts, count=count) if count else None)
    return found


def with_fewer_experts(system: System, case: Case) -> list[System]:
    """A system as it is and, if it leaves their number open, with fewer experts a token."""
    top_ks = {round(share * case.model.top_k) for share in FEWER} if getattr(system, "top_k", 0) is None else set[int]()
    fewer: list[dict[str, Any]] = [{"top_k": top_k} for top_k in sorted(top_ks) if 0 < top_k < case.model.top_k]
    return [system, *(replace(system, **each) for each in fewer)]


def _threads() -> list[int]:
    """The cores, some fewer, and every thread of the processors."""
    cores, every = physical_cores(), os.cpu_count() or 1
    return sorted({max(cores // 2, 1), max(cores * 3 // 4, 1), max(cores - 1, 1), cores, every})
