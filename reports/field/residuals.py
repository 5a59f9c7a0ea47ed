"""How far published speeds are from the commands' answers: one line for each row and machine that it is asked on."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from flashmoe_sim.field.engines import engine_of
from flashmoe_sim.field.rows import source_of
from flashmoe_sim.machines.belief import ANY, Draws, ends, published_times
from reports.field.asked import PARTS, Answered
from reports.field.errors import Errors, draws_of, left_out

TABLE = Path(__file__).with_name("residuals.csv")
TWO = math.log(2)
LEFT_OUT = ("machine", "source", "engine")


class Score(NamedTuple):
    """Errors of rows: the median of |predicted / measured - 1| and of predicted / measured, the shares within a factor
    of two and inside the interval, and the median of its upper end over its lower one."""

    rows: int
    error: float
    ratio: float
    within_2: float
    inside: float
    apart: float


def table(ran: Sequence[Answered], found: Errors) -> pl.DataFrame:
    """A line for each answer: who measured it on what, shares of the predicted time by part, and speeds.

    tok_s, lo, hi: as printed; without_machine_tok_s and so on: if all is fitted without that machine, source or engine.
    system: empty if a plain engine stands for the row's.
    """
    without = {by: left_out(ran, found, by) for by in LEFT_OUT}
    lines = []
    for one in ran:
        row, case = one.row, one.asked.case
        names = {"machine": row.machine_id or row.id, "source": source_of(row), "engine": engine_of(row)}
        parts = one.found.ms_per_token or {}
        fits = {"": found} | {f"without_{by}_": without[by][name] for by, name in names.items()}
        speeds = dict[str, float]()
        for prefix, fit in fits.items():
            tok_s = _tok_s(one, fit)
            lo, hi = ends(tok_s, draws(one, found, fit.sd))
            speeds |= {f"{prefix}tok_s": tok_s, f"{prefix}lo": lo, f"{prefix}hi": hi}
        lines.append(
            {
                "id": row.id,
                "source": names["source"],
                "machine_id": names["machine"],
                "engine": row.engine,
                "strategy": row.strategy,
                "system": None if one.plain else one.asked.system.name,
                "way": getattr(one.asked.system, "way", None),
                "setting": one.asked.system.spec,
                "machine": one.machine,
                "arch": case.model.arch,
                "api": case.machine.api if one.asked.system.uses_gpu else None,
                **{part: ms / sum(parts.values()) for part, ms in parts.items()},
                "measured_tok_s": row.decode_tok_s,
                **speeds,
            }
        )
    return pl.DataFrame(lines, infer_schema_length=None).with_columns(pl.selectors.float().round_sig_figs(4))


def _tok_s(one: Answered, of: Errors) -> float:
    """The speed that the commands answer once these errors are theirs."""
    system = one.asked.whose.system
    return (one.found.tok_s or math.nan) * of.times.get(system, of.times[ANY]) / published_times(system)


def wins(ran: Sequence[Answered], found: Errors) -> pl.DataFrame:
    """A line for each pair of programs on one machine with one model: the share of draws in which `faster` wins."""
    groups = defaultdict(list)
    for one in ran:
        if not one.plain:
            logs = math.log(_tok_s(one, found)) + draws(one, found, found.sd)
            groups[one.row.machine_id or one.row.id, one.machine, one.asked.whose.model].append((one, logs))
    lines = []
    for (machine_id, _, _), group in groups.items():
        for (one, mine), (other, theirs) in itertools.combinations(group, 2):
            if one.asked.whose.program == other.asked.whose.program:
                continue
            share = float(np.mean(mine > theirs))
            faster, slower, share = (one, other, share) if share >= 0.5 else (other, one, 1 - share)
            held = (faster.row.decode_tok_s or 0.0) > (slower.row.decode_tok_s or 0.0)
            lines.append((source_of(one.row), machine_id, faster.row.id, slower.row.id, round(share, 4), held))
    return pl.DataFrame(lines, ("source", "machine_id", "faster", "slower", "share", "held"), orient="row")


def known(rows: pl.DataFrame) -> pl.DataFrame:
    """Lines that a system answered, on parts and on presets."""
    return rows.filter(pl.col("system").is_not_null())


def draws(one: Answered, found: Errors, sd: dict[str, float]) -> Draws:
    """Draws of the logarithm of a speed over the predicted one. sd: of engines' errors, by system."""
    whose = one.asked.whose
    return one.of_machine + sd.get(whose.system, sd[ANY]) * draws_of(whose, found.shares)


def on_parts(rows: pl.DataFrame) -> pl.DataFrame:
    """Lines of rows on the machine of their parts."""
    return rows.filter(pl.col("machine") == PARTS)


def score(rows: pl.DataFrame, prefix: str = "") -> Score:
    """Errors of lines. prefix: such as `without_source_`."""
    ratio = (rows[f"{prefix}tok_s"] / rows["measured_tok_s"]).to_list()
    lo, hi = rows[f"{prefix}lo"], rows[f"{prefix}hi"]
    return Score(
        len(rows),
        statistics.median(abs(one - 1) for one in ratio),
        statistics.median(ratio),
        statistics.fmean(abs(math.log(one)) <= TWO for one in ratio),
        statistics.fmean(rows["measured_tok_s"].is_between(lo, hi)),
        statistics.median((hi / lo).to_list()),
    )


def checked(rows: pl.DataFrame) -> dict[str, float]:
    """How many lines there are, and the shares inside the printed interval and those without a machine or a source."""
    without = {f"without_{by}": score(rows, f"without_{by}_").inside for by in ("machine", "source")}
    return {"rows": len(rows), "inside": score(rows).inside} | without
