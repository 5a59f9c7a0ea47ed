"""Rows as a table of published speeds has them."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

from reports.field.report import raws_with
from reports.field.rows import COLUMNS, FieldRow, read_rows
from reports.field.scores import Judged, judged
from reports.field.tune import load

DEFAULTS = {
    "id": "one",
    "engine": "llama.cpp",
    "strategy": "n_cpu_moe",
    "model": "Qwen3-30B-A3B",
    "quant": "Q4_K_M",
    "gpu": "RTX 3090",
    "cpu": "Ryzen 9 5950X",
    "ram_gib": "64",
    "decode_tok_s": "20",
}


@cache
def judged_today() -> tuple[Judged, ...]:
    """Every published row, as it is predicted today."""
    curves = load().curves
    return tuple(judged(raws_with(curves), curves))


def write(path: Path, *rows: dict[str, str], columns: tuple[str, ...] = COLUMNS) -> Path:
    """A table with these cells; a cell that is not given is blank."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return path


def row(folder: Path, **cells: str) -> FieldRow:
    """One row: a run of a usual model on a usual machine, but for these cells."""
    return read_rows(write(folder / "rows.csv", DEFAULTS | cells))[0]
