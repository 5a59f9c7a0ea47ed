"""The line that starts an engine with a setting of a search, knobs included."""

from __future__ import annotations

from dataclasses import replace

from flashmoe_sim.io.errors import Unsupported
from flashmoe_sim.systems.base import Launch
from flashmoe_sim.systems.placed import BATCH
from flashmoe_sim.tune.grid import Grid
from flashmoe_sim.tune.trials import UBATCH, Trial
from native_bridge.host import core_mask, physical_cores
from native_bridge.tuning.program import CORES, KNOB_FLAGS, MMAP, PINNED, Program

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
