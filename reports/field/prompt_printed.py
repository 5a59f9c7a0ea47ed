"""What the commands print for published speeds of prompts that say how long they were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.machines.belief import Draws, ends, error_draws, errors
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.systems.base import System
from flashmoe_sim.systems.compare import Compared, at_setting, case_of
from flashmoe_sim.systems.facts import NO_MMAP
from flashmoe_sim.systems.placed import PlacedLayers
from flashmoe_sim.trace.routing import RoutingTrace
from reports.field.depth import kv_type_of
from reports.field.model import model_of
from reports.field.printed import machines_of, system_of, workload_of
from reports.field.prompt import Prompt, prompt_of
from reports.field.rows import FieldRow
from reports.field.scores import machine_id

REPACKED = "-rtr"  # of ik_llama.cpp: no prompt copies repacked experts to the GPU, and no setting here says so
TABLE = Path(__file__).with_name("prompts_printed.csv")
SDS = np.linspace(0.1, 1.5, 141)


def table(rows: Sequence[FieldRow]) -> tuple[pl.DataFrame, float]:
    """A row for each prompt of a told length, on the machine of its parts and on presets; and the error of engines.

    lo and hi are as printed with that error, see `sd_of`.
    """
    traces = dict[object, tuple[RoutingTrace, bool]]()
    found, of_machine, of_engine = list[dict[str, object]](), list[Draws](), list[Draws]()
    for row in rows:
        if not (prompt := prompt_of(row)).length_given:
            continue
        try:
            system, model = system_of(row), model_of(row)
            workload, borrowed = workload_of(model, traces)
            for name, machine in machines_of(row).items():
                one = _asked(row, system, machine, workload, prompt, borrowed=borrowed)
                if one is None or one.prompt_draws is None or one.prompt_tok_s is None:
                    continue
                engine = error_draws(machine, one.system.whose(model.base_name), prompt=True)
                of_machine.append(np.log(one.prompt_draws / one.prompt_tok_s) - engine)
                of_engine.append(engine / errors()["prompts"]["sd"])
                found.append(
                    {
                        "machine": name,
                        "id": row.id,
                        "machine_id": machine_id(row),
                        "setting": one.system.spec,
                        "measured_tok_s": row.prompt_tok_s,
                        "tok_s": one.prompt_tok_s,
                    }
                )
        except BadInput:
            continue
    frame = pl.DataFrame(found, infer_schema_length=None)
    tok_s = frame["tok_s"].to_numpy()
    weights = frame.select(pl.len().over("machine_id"))["len"].to_numpy() ** -0.5
    machines, engines = np.array(of_machine), np.array(of_engine)
    sd = sd_of(frame["measured_tok_s"].to_numpy() / tok_s, machines, engines, weights)
    lo, hi = tok_s * _ends(machines + sd * engines)
    return frame.with_columns(lo=lo, hi=hi).with_columns(pl.selectors.float().round_sig_figs(4)), sd


def _asked(
    row: FieldRow, system: System, machine: Machine, workload: Workload, prompt: Prompt, *, borrowed: bool
) -> Compared | None:
    """A row's prompt as the commands time it; None if they refuse it, or cannot be asked so."""
    assert workload.geometry is not None
    if isinstance(system, PlacedLayers):
        if REPACKED in row.flags.split():
            return None
        mmap = "no" if NO_MMAP in row.flags else "yes"  # as llama.cpp does unless told otherwise
        system = replace(system, ubatch=prompt.batch or None, mmap=mmap)
    case = case_of(workload.geometry, machine, workload=workload)
    if prompt.depth and case.model.attention is None:
        return None
    case = replace(case, depth=prompt.depth, kv_type=kv_type_of(row))
    try:
        setting = system if system.size_given else system.sized(case)
    except BadInput:
        return None
    return at_setting(workload, case, setting, borrowed=borrowed, prompt_tokens=prompt.tokens)


def sd_of(
    times: NDArray[np.float64],
    machines: NDArray[np.float64],
    engines: NDArray[np.float64],
    weights: NDArray[np.float64],
) -> float:
    """The least error of engines with which nine of ten measured speeds are inside, beside what the machine explains.

    They are, whether a row counts as one or by its weight.
    times: f64 [rows], the measured speed over the predicted one. machines, engines: f64 [rows, 512], draws of what the
    machine explains of its logarithm, and of an engine's error of 1.
    """
    for sd in SDS:
        lo, hi = _ends(machines + sd * engines)
        inside = (lo <= times) & (times <= hi)
        if min(inside.mean(), weights[inside].sum() / weights.sum()) >= 0.9:
            return float(sd)
    return float(SDS[-1])


def _ends(draws: NDArray[np.float64]) -> NDArray[np.float64]:
    """The ends of each row's interval over its prediction, f64 [2, rows]."""
    return np.array([ends(1.0, of_row) for of_row in draws]).T
