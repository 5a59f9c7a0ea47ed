"""What to measure next: the run that would narrow an answer most, or decide between two engines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flashmoe_sim.machines.anchors import SPEED_SD
from flashmoe_sim.machines.belief import Draws, normals
from flashmoe_sim.systems.base import LLAMA_CPP, Case, Launch
from flashmoe_sim.systems.compare import Compared
from flashmoe_sim.tune.objective import Objective
from flashmoe_sim.tune.proof import first, wins

UNDECIDED = 0.1  # of the draws: a rival that is faster in so many may be faster
TOKENS, REPEATS = 128, 5  # that llama-bench decodes
SETUP_S = 60.0  # of a run, beside reading the model and decoding
BETWEEN = {"-ot": ";", "-ts": "/", "-dev": "/"}  # one run's values, in llama-bench
NOT_IN_BENCH = {"--moe-cache-mib"}  # flags without which another setting would run, and which llama-bench lacks


@dataclass(frozen=True, eq=False)
class SuggestedRun:
    """A setting to measure.

    line: the command that does. minutes: an estimate. narrows: the share of its standard deviation that the first
    choice's speed would lose. decides: the share of the variance of what is between the first choice and its rival that
    the speed would explain; None without a rival.
    """

    setting: Compared
    line: str
    minutes: float
    narrows: float
    decides: float | None


@dataclass(frozen=True, eq=False)
class Next:
    """Runs, the most telling one first. rival: the fastest engine that may be faster than the first choice, in a share
    `wins` of the draws: all but certainly, if only proof of it lacks. None if none may be."""

    case: Case
    choice: Compared
    rival: Compared | None
    wins: float
    runs: tuple[SuggestedRun, ...]
    notes: tuple[str, ...] = ()


def next_runs(found: Sequence[Compared], case: Case) -> Next | None:
    """What a run of each setting would tell; None if none runs. found: each system at its best."""
    objective = Objective()
    choice = first(found, case, objective)
    if choice is None:
        return None
    ran = [one for one in found if one.draws is not None]
    shares = [
        (wins(one, choice, objective), one) for one in ran if one is not choice and not one.system.changes_text(case)
    ]
    open_ = [(share, one) for share, one in shares if share >= UNDECIDED]
    share, rival = max(open_, key=lambda each: each[1].tok_s or 0.0, default=(0.0, None))
    mine = _logs(choice)
    between = None if rival is None else mine - _logs(rival)
    runs = []
    for one in ran:
        measured = _logs(one) + SPEED_SD * normals(f"measured {one.system.spec}")
        narrows = 1 - float(np.sqrt(1 - _explained(mine, measured)))
        decides = None if between is None else _explained(between, measured)
        runs.append(SuggestedRun(one, _line(one), _minutes(one, case), narrows, decides))
    runs.sort(key=lambda run: -(run.narrows if run.decides is None else run.decides))
    return Next(case, choice, rival, share, tuple(runs))


def _logs(one: Compared) -> Draws:
    assert one.draws is not None
    return np.log(one.draws)


def _explained(what: Draws, measured: Draws) -> float:
    """The share of the variance of one that the other explains."""
    return float(np.corrcoef(what, measured)[0, 1] ** 2)


def _minutes(one: Compared, case: Case) -> float:
    """Reading the model once, and decoding."""
    read_s = (case.model.routed_bytes + (case.model.dense_bytes or 0)) / (case.machine.storage.read_gb_s.value * 1e9)
    return (SETUP_S + read_s + TOKENS * REPEATS / (one.tok_s or 1.0)) / 60


def _line(one: Compared) -> str:
    """llama-bench with the setting's flags if it is llama.cpp's, else the engine's own line."""
    assert one.launch is not None
    words = one.launch.words
    if one.system.program != LLAMA_CPP or NOT_IN_BENCH & {*words}:
        return one.launch.line
    model = [word for flag in ("-m", "-hf") if flag in words for word in (flag, words[words.index(flag) + 1])]
    bench = ("llama-bench", *model, *bench_words(words), "-p", "0", "-o", "json")
    return f"{Launch(bench, powershell=one.launch.powershell).line} > bench.json"


def bench_words(words: Sequence[str]) -> list[str]:
    """The placement of a line of llama-server, in the flags of llama-bench.

    Source: tools/llama-bench/README.md@08d0baaca: a comma lies between runs, and others between one run's values.
    """
    kept = list[str]()
    for flag in ("-ngl", "--n-cpu-moe", "-ot", "-ts", "-dev", "-fa", "-ub", "-t"):
        if flag in words:
            value = words[words.index(flag) + 1]
            kept += [flag, "1" if flag == "-fa" else value.replace(",", BETWEEN.get(flag, ","))]
    return kept
