"""What every estimator is asked: published speeds, and what their rows tell of model, machine and placement."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import polars as pl

from flashmoe_sim.field.asked import Traces, asked_of
from flashmoe_sim.field.estimators import told, untold
from flashmoe_sim.field.rows import source_of
from reports.field import residuals
from reports.field.report import judged_rows

TABLE = Path(__file__).with_name("questions.csv")


def questions() -> list[dict[str, Any]]:
    """The questions, as they are kept."""
    return pl.read_csv(TABLE, infer_schema_length=None).to_dicts()


def seal() -> str:
    """The name of the questions and of what was measured: another set, or a row changed, has another name."""
    return hashlib.sha256(TABLE.read_bytes()).hexdigest()[:16]


def table() -> pl.DataFrame:
    """A line for each row of the field report that every estimator can be told: one GPU or none, and no drafts."""
    known = set(residuals.on_parts(pl.read_csv(residuals.TABLE, infer_schema_length=None))["id"])
    traces, lines = Traces(), []
    for row in judged_rows():
        if row.id not in known:
            continue
        of = asked_of(row, traces)
        if not untold(row, of.case.machine, drafts=bool(of.case.drafts)):
            asked = told(row, of.case.model, of.case.machine)
            lines.append({"id": row.id, "source": source_of(row), **asked, "tok_s": row.decode_tok_s})
    return pl.DataFrame(lines, infer_schema_length=None).with_columns(pl.selectors.float().round_sig_figs(4))


def write() -> None:
    table().write_csv(TABLE)
