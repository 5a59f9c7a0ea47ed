"""Who answers the questions: this program in four ways, a formula, and other people's programs by what they said."""

from __future__ import annotations

import csv
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import polars as pl

from flashmoe_sim.field.estimators import OneEstimate, Question, bytes_over_bandwidth, on_paper
from reports.field import first, residuals

ANSWERS = Path(__file__).with_name("answers.csv")  # of other people's programs, as `python -m reports.referee ask` got
Estimator: TypeAlias = Callable[[Question], OneEstimate]


def estimators() -> dict[str, Estimator]:
    """By name: each has to answer whatever is asked, if only with a refusal."""
    own = {
        row["id"]: row for row in residuals.on_parts(pl.read_csv(residuals.TABLE, infer_schema_length=None)).to_dicts()
    }
    ours: dict[str, Estimator] = {
        "flashmoe-sim, before it saw the row": partial(_recorded, before()),
        "flashmoe-sim, without who measured it": partial(_left_out, own, "without_source"),
        "flashmoe-sim, without its machine": partial(_left_out, own, "without_machine"),
        "flashmoe-sim on paper": partial(_on_paper, own),
        "bytes over bandwidth": bytes_over_bandwidth,
    }
    return ours | {name: partial(_recorded, rows) for name, rows in recorded().items()}


def _left_out(own: dict[str, dict[str, Any]], what: str, question: Question) -> OneEstimate:
    """The printed answer, all fitted without the row's source or machine."""
    row = own[question["id"]]
    return OneEstimate(*(row[f"{what}_{name}"] for name in ("tok_s", "lo", "hi")))


def _on_paper(own: dict[str, dict[str, Any]], question: Question) -> OneEstimate:
    """The speed of the parts, without what published speeds say of the engine."""
    row = own[question["id"]]
    return on_paper(row["tok_s"], row["system"] or "")


def before() -> dict[str, OneEstimate]:
    """What the commands answered before anything of a row was used, by its id."""
    rows = pl.read_csv(first.TABLE, infer_schema_length=None).filter(~pl.col("commit").is_in(first.OLD))
    return {row["id"]: OneEstimate(row["tok_s"], row["lo"], row["hi"]) for row in rows.to_dicts()}


def recorded() -> dict[str, dict[str, OneEstimate]]:
    """What other people's programs answered, by their name with the version, and the id of the question."""
    found: dict[str, dict[str, OneEstimate]] = {}
    with ANSWERS.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            tok_s, lo, hi = (float(row[name]) if row[name] else None for name in ("tok_s", "lo", "hi"))
            found.setdefault(row["estimator"], {})[row["id"]] = OneEstimate(tok_s, lo, hi, row["why_not"])
    return found


def _recorded(rows: dict[str, OneEstimate], question: Question) -> OneEstimate:
    return rows.get(question["id"], OneEstimate(why_not="not asked, or the row was seen before"))
