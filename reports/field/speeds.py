"""The published speeds that stand beside an answer: written to flashmoe_sim/tune/speeds_of_others.csv.

python -m reports.field.speeds   # after `python -m reports.field`
"""

from __future__ import annotations

import csv
import re

import polars as pl

from flashmoe_sim.field.asked import Traces, asked_of
from flashmoe_sim.geometry.named import file_bytes
from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.machines.machine import Machine, Quantity
from flashmoe_sim.tune.others import TABLE
from reports.field import residuals
from reports.field.report import PUBLISHED, TABLES, judged_rows

READS = 0.2  # of a token's time: then its speed is that of the drive
_IN_BRACKETS = re.compile(r"\s*\(.*?\)")


def urls() -> dict[str, str]:
    """The address of each row's source."""
    found = dict[str, str]()
    for name in TABLES:
        with (PUBLISHED / name).open(encoding="utf-8-sig", newline="") as file:
            found |= {row["id"]: row["source_url"] for row in csv.DictReader(file)}
    return found


def table() -> pl.DataFrame:
    """A line for each row that a system answers on the machine of its parts."""
    asked = {line["id"]: line for line in residuals.known(residuals.on_parts(pl.read_csv(residuals.TABLE))).to_dicts()}
    traces, where, lines = Traces(), urls(), []
    for row in judged_rows():
        if row.id not in asked:
            continue
        of = asked_of(row, traces)
        machine = of.case.machine
        lines.append(
            {
                "model": of.case.model.base_name,
                "file_gib": round(file_bytes(of.case.model) / GIB, 1),
                "on": _IN_BRACKETS.sub("", row.gpu or row.cpu).strip() or "a computer",
                **_rates(machine, uses_gpu=of.system.uses_gpu),
                "system": of.system.name,
                "depth": of.case.depth,
                "drafts": 0 if of.case.drafts is None else of.case.drafts.count,
                "reads": bool((asked[row.id]["read"] or 0.0) > READS),
                "tok_s": row.decode_tok_s,
                "url": where[row.id],
            }
        )
    return pl.DataFrame(lines).sort("model", "on", "system", "tok_s")


def _rates(machine: Machine, *, uses_gpu: bool) -> dict[str, float | None]:
    unit, memory = machine.gpu if uses_gpu else None, machine.memory
    return {
        "gpu_gib": _value(None if unit is None else unit.memory_gib),
        "gpu_gb_s": _value(None if unit is None else unit.weights_gb_s),
        "ram_gb_s": _value(None if memory is None else memory.bandwidth_gb_s),
    }


def _value(quantity: Quantity | None) -> float | None:
    return None if quantity is None else round(quantity.value, 1)


if __name__ == "__main__":
    table().write_csv(TABLE)
