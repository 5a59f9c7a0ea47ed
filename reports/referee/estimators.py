"""Who answers the questions: this program in four ways, a formula, and other people's programs by what they said."""

from __future__ import annotations

import csv
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import polars as pl

from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.machines.belief import published_times
from reports.field import first, residuals

ANSWERS = Path(__file__).with_name("answers.csv")  # of other people's programs, as `python -m reports.referee ask` got
Question: TypeAlias = dict[str, Any]


class Estimate(NamedTuple):
    """A speed in tokens a second, with an interval if there is one, or why there is none."""

    tok_s: float | None = None
    lo: float | None = None
    hi: float | None = None
    why_not: str = ""


Estimator: TypeAlias = Callable[[Question], Estimate]


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


def _left_out(own: dict[str, dict[str, Any]], what: str, question: Question) -> Estimate:
    """The printed answer, all fitted without the row's source or machine."""
    row = own[question["id"]]
    return Estimate(*(row[f"{what}_{name}"] for name in ("tok_s", "lo", "hi")))


def _on_paper(own: dict[str, dict[str, Any]], question: Question) -> Estimate:
    """The speed of the parts, without what published speeds say of the engine."""
    row = own[question["id"]]
    return Estimate(row["tok_s"] / published_times(row["system"] or ""))


def before() -> dict[str, Estimate]:
    """What the commands answered before anything of a row was used, by its id."""
    rows = pl.read_csv(first.TABLE, infer_schema_length=None).filter(~pl.col("commit").is_in(first.OLD))
    return {row["id"]: Estimate(row["tok_s"], row["lo"], row["hi"]) for row in rows.to_dicts()}


def bytes_over_bandwidth(question: Question) -> Estimate:
    """What calculators do: the bytes of a token over the bandwidth of where they are, filling the GPU first."""
    gpu_gb_s, ram_gb_s, file_gib = question["gpu_gb_s"], question["ram_gb_s"], question["file_gib"]
    if question["gpu"] and gpu_gb_s is None:
        return Estimate(why_not="the bandwidth of the GPU is not known")
    on_gpu = min((question["gpu_gib"] or question["ram_gib"]) / file_gib, 1.0) if question["gpu"] else 0.0
    in_ram = 0.0 if question["unified"] and question["gpu"] else min(question["ram_gib"] / file_gib, 1.0 - on_gpu)
    places = ((on_gpu, gpu_gb_s), (in_ram, ram_gb_s), (1.0 - on_gpu - in_ram, question["ssd_gb_s"]))
    seconds = sum(question["active_gib"] * GIB / 1e9 * share / rate for share, rate in places if share > 0)
    return Estimate(1.0 / seconds)


def recorded() -> dict[str, dict[str, Estimate]]:
    """What other people's programs answered, by their name with the version, and the id of the question."""
    found: dict[str, dict[str, Estimate]] = {}
    with ANSWERS.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            tok_s, lo, hi = (float(row[name]) if row[name] else None for name in ("tok_s", "lo", "hi"))
            found.setdefault(row["estimator"], {})[row["id"]] = Estimate(tok_s, lo, hi, row["why_not"])
    return found


def _recorded(rows: dict[str, Estimate], question: Question) -> Estimate:
    return rows.get(question["id"], Estimate(why_not="not asked, or the row was seen before"))
