"""The line that starts an engine with a setting of a search, knobs included."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from flashmoe_sim.io.errors import Unsupported
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.systems.base import Case, Launch, System
from flashmoe_sim.systems.placed import BATCH
from flashmoe_sim.tune.grid import Grid
from flashmoe_sim.tune.kv_types import WEIGHED, with_type
from flashmoe_sim.tune.objective import Objective
from flashmoe_sim.tune.trials import THREADS, UBATCH, Trial
from native_bridge.host import core_mask, physical_cores
from native_bridge.tuning.program import CORES, DRAFT, KNOB_FLAGS, KV, MMAP, NUMA, PINNED, Program

LOAD_MODE, BEFORE = ("--load-mode", "none"), ("--no-mmap",)  # the same, and in older builds


def with_knobs(trial: Trial, launch: Launch, program: Program) -> Launch:
    """The line of a setting, with its knobs as llama-server's flags, for the build that runs and beside it."""
    knobs, words = dict(trial.knobs), list(launch.words)
    for name, flag in KNOB_FLAGS.items():
        if name in knobs and flag in words:
            words[words.index(flag) + 1] = knobs[name]
        elif name in knobs:
            words += [flag, knobs[name]]
    if int(knobs.get(UBATCH, 0)) > BATCH:
        words += ["-b", knobs[UBATCH]]
    if CORES in knobs:
        threads = words[words.index("-t") + 1] if "-t" in words else str(physical_cores())
        words += [PINNED[0], core_mask(int(threads)), PINNED[1], "1"]
    if (mapped := knobs.get(MMAP)) is not None:
        words = _mapped(words, trial.system.unmapped, yes=mapped == "yes")
    if LOAD_MODE[0] in words and not {"-lm", LOAD_MODE[0]} & program.flags:
        mode = words.index(LOAD_MODE[0])
        words[mode : mode + len(LOAD_MODE)] = BEFORE
    return replace(launch, words=tuple(program.started(words)))


def why_not(trial: Trial, launch: Launch, program: Program) -> str:
    """Why a build does not run a setting; empty if it does."""
    if flag := program.lacking(with_knobs(trial, launch, program).words):
        return f"{trial.system.name} is started with {flag}, which {program.path} does not have"
    if launch.first_start:
        return f"{trial.system.name} first makes files of its own; start it once, and give them"
    return ""


def of_build(found: Grid, program: Program) -> Grid:
    """The settings that a build runs. Raises BadInput if there is none."""
    reasons: list[str] = []
    trials: list[Trial] = []
    for trial in found.trials:
        launch = found.of(trial).launch
        assert launch is not None
        if reason := why_not(trial, launch, program):
            reasons.append(reason)
        else:
            trials.append(trial)
    if not trials:
        raise Unsupported(reasons[0], advice="give another --engine or --system")
    return replace(found, trials=tuple(trials))


def _mapped(words: list[str], unmapped: tuple[str, ...], *, yes: bool) -> list[str]:
    at = words.index(unmapped[0]) if unmapped[0] in words else None
    if yes and at is not None:
        return words[:at] + words[at + len(unmapped) :]
    return words if yes or at is not None else [*words, *unmapped]


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
