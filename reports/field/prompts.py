"""What the commands print for published speeds of prompts that say how long they were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from flashmoe_sim.field.asked import AskedRow, Traces, asked_of, asked_on
from flashmoe_sim.field.rows import FieldRow
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.machines.belief import Draws, ends, error_draws, errors
from flashmoe_sim.systems.any_engine import Plain
from flashmoe_sim.systems.compare import Compared
from flashmoe_sim.systems.facts import NO_MMAP
from flashmoe_sim.systems.placed import PlacedLayers
from reports.field.asked import PARTS, presets_of
from reports.field.prompt import Prompt, prompt_of
from reports.field.residuals import score

REPACKED = "-rtr"  # of ik_llama.cpp: no prompt copies repacked experts to the GPU, and no setting here says so
TABLE = Path(__file__).with_name("prompts.csv")
SDS = np.linspace(0.1, 1.5, 141)


def table(rows: Sequence[FieldRow]) -> tuple[pl.DataFrame, float]:
    """A row for each prompt of a told length, on the machine of its parts and on presets; and the error of engines.

    lo and hi are as printed with that error, see `sd_of`.
    """
    traces = Traces()
    found, of_machine, of_engine = list[dict[str, object]](), list[Draws](), list[Draws]()
    for row in rows:
        if not (prompt := prompt_of(row)).length_given:
            continue
        try:
            on_parts = asked_of(row, traces)
            if isinstance(on_parts.system, Plain):
                continue
            on = {PARTS: on_parts.case.machine} | presets_of(row)
            for name, machine in on.items():
                one = prompt_answer(asked_on(row, on_parts.system, machine, traces), prompt)
                if one is None or one.prompt_draws is None or one.prompt_tok_s is None:
                    continue
                engine = error_draws(machine, on_parts.whose, prompt=True)
                of_machine.append(np.log(one.prompt_draws / one.prompt_tok_s) - engine)
                of_engine.append(engine / errors()["prompts"]["sd"])
                found.append(
                    {
                        "machine": name,
                        "id": row.id,
                        "machine_id": row.machine_id or row.id,
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


def prompt_answer(asked: AskedRow, prompt: Prompt) -> Compared | None:
    """A row's prompt as the commands time it; None if they refuse it, or cannot be asked so."""
    system, case = asked.system, replace(asked.case, depth=prompt.depth)
    if isinstance(system, PlacedLayers):
        if REPACKED in asked.row.flags.split():
            return None
        mmap = "no" if NO_MMAP in asked.row.flags else "yes"  # as llama.cpp does unless told otherwise
        system = replace(system, ubatch=prompt.batch or None, mmap=mmap)
    if prompt.depth and case.model.attention is None:
        return None
    found = replace(asked, system=system, case=case).answer(prompt_tokens=prompt.tokens)
    return found if found.prompt_tok_s is not None else None


def section(lines: pl.DataFrame) -> str:
    """How good the prompt speeds of the commands are, to which nothing was fitted but their interval."""
    one, machines = score(lines), lines["machine_id"].n_unique()
    return (
        "`sim compare` times a prompt by replaying one through the timeline, and fits nothing but the spread of its "
        f"interval. {one.rows} answers on {machines} machines, to rows that say how long the prompt was, have a median "
        f"error of {one.error:.0%}; {one.within_2:.0%} are within a factor of two, and {one.inside:.0%} inside the "
        f"interval, whose ends are a factor of {one.apart:.0f} apart in the median. "
        "[prompts.csv](prompts.csv) has them."
    )


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
