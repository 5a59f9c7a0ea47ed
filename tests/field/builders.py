"""Rows as a table of published speeds has them."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

import polars as pl

from flashmoe_sim.field.rows import COLUMNS, FieldRow, read_rows
from reports.field.report import judged_rows
from reports.field.residuals import TABLE

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
def published() -> dict[str, FieldRow]:
    """Every published row that counts, by its id."""
    return {row.id: row for row in judged_rows()}


@cache
def residuals() -> pl.DataFrame:
    """The committed answers."""
    return pl.read_csv(TABLE)


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
