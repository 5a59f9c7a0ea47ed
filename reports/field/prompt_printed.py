"""What the commands print for published speeds of prompts that say how long they were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.machines.belief import SD_90, error_draws
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.systems.base import System
from flashmoe_sim.systems.compare import at_setting, case_of
from flashmoe_sim.systems.facts import NO_MMAP
from flashmoe_sim.systems.placed import Placed
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


def table(rows: Sequence[FieldRow]) -> pl.DataFrame:
    """A row for each prompt of a told length, on the machine of its parts and on presets; lo and hi as printed.

    machine_sd: of the logarithm of the speed, without the error of engines.
    """
    traces = dict[object, tuple[RoutingTrace, bool]]()
    found = []
    for row in rows:
        if not (prompt := prompt_of(row)).length_given:
            continue
        try:
            system, model = system_of(row), model_of(row)
            workload, borrowed = workload_of(model, traces)
            for name, machine in machines_of(row).items():
                asked = _asked(row, system, machine, workload, prompt, borrowed=borrowed)
                found += [{"machine": name, **asked}] if asked else []
        except BadInput:
            continue
    return pl.DataFrame(found, infer_schema_length=None).with_columns(pl.selectors.float().round_sig_figs(4))


def _asked(
    row: FieldRow, system: System, machine: Machine, workload: Workload, prompt: Prompt, *, borrowed: bool
) -> dict[str, object]:
    """A row's prompt as the commands time it; empty if they refuse it, or cannot be asked so."""
    assert workload.geometry is not None
    if isinstance(system, Placed):
        if REPACKED in row.flags.split():
            return {}
        mmap = "no" if NO_MMAP in row.flags else "yes"  # as llama.cpp does unless told otherwise
        system = replace(system, ubatch=prompt.batch, mmap=mmap)
    case = case_of(workload.geometry, machine, workload=workload)
    if case.model.attention is not None:
        case = replace(case, depth=prompt.depth, kv_type=kv_type_of(row))
    try:
        setting = system if system.size_given else system.sized(case)
    except BadInput:
        return {}
    one = at_setting(workload, case, setting, borrowed=borrowed, prompt_tokens=prompt.tokens)
    if one.prompt_draws is None or one.prompt_tok_s is None:
        return {}
    engine = error_draws(machine, setting.whose(case.model.base_name), prompt=True)
    of_machine = np.log(one.prompt_draws / one.prompt_tok_s) - engine
    return {
        "id": row.id,
        "machine_id": machine_id(row),
        "setting": setting.spec,
        "measured_tok_s": row.prompt_tok_s,
        "tok_s": one.prompt_tok_s,
        "lo": one.prompt_tok_s_lo,
        "hi": one.prompt_tok_s_hi,
        "machine_sd": float(of_machine.std()),
    }


def sd_of(rows: pl.DataFrame) -> float:
    """The least error of engines with which nine of ten measured speeds are inside, beside what the machine explains.

    They are, whether a machine counts as its rows or as the square root of them.
    """
    off = (rows["measured_tok_s"] / rows["tok_s"]).log().abs().to_numpy()
    weights = rows.select(pl.len().over("machine_id"))["len"].to_numpy() ** -0.5
    explained = rows["machine_sd"].to_numpy()
    for sd in SDS:
        inside = off <= SD_90 * np.hypot(explained, sd)
        if min(inside.mean(), weights[inside].sum() / weights.sum()) >= 0.9:
            return float(sd)
    return float(SDS[-1])
