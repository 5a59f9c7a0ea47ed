"""`docs/reference/models.md`: what to run for every model on every machine."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import polars as pl

from flashmoe_sim.io.cells import brief_interval, speed
from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.table import PRESETS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "models.md"
SAID = """# Every model on every machine

What `sim recommend MODEL --machine MACHINE` names first, with an empty context: {models} models on {machines} machines;
of these pairs {answers} run. GPU and RAM: GiB that it takes, without what the system caches of a file that is read
again and again. 90 %: the interval in which nine of ten measured speeds are expected. A setting is a
[system](systems.md) with its parameters; `sim system show` says where to get its engine. `sim recommend` also says what
holds a machine back and what would gain most, and takes your own parts: `--machine "rtx-3060 + ryzen-5600 + 64GiB"`.

Made by `python -m reports.models`; the numbers are in `reports/models/answers.csv`.
"""


def markdown(answers: pl.DataFrame) -> str:
    """The page: machines in the program's order, on each the fastest model first."""
    runs = answers.filter(pl.col("tok_s").is_not_null())
    fastest = sorted(runs.iter_rows(named=True), key=lambda row: (PRESETS.index(row["machine"]), -row["tok_s"]))
    cells = [
        (
            row["machine"],
            row["model"],
            speed(row["tok_s"]),
            brief_interval(row["tok_s_lo"], row["tok_s_hi"]),
            *(f"{row[name] / GIB:.1f}" for name in ("gpu_bytes", "ram_bytes")),
            row["setting"],
            f"`{row['command']}`",
        )
        for row in fastest
    ]
    cannot = answers.filter(pl.col("tok_s").is_null())
    parts = [
        SAID.format(models=answers["model"].n_unique(), machines=len(PRESETS), answers=len(runs)),
        *_table("machine model tok/s 90_% GPU RAM setting command", "llrrrrll", cells),
        "",
        "## The machines, and which models no engine runs there",
        "",
        *_table("machine what does_not_run", "lll", (_of_machine(name, cannot) for name in PRESETS)),
    ]
    return "\n".join(parts) + "\n"


def _of_machine(name: str, cannot: pl.DataFrame) -> tuple[str, ...]:
    refused = cannot.filter(pl.col("machine") == name)["model"]
    return name, load_machine(name).title, ", ".join(refused) or "-"


def _table(headings: str, sides: str, rows: Iterable[tuple[str, ...]]) -> list[str]:
    heads = [heading.replace("_", " ") for heading in headings.split()]
    rules = ["---:" if side == "r" else "---" for side in sides]
    body = ([cell.replace("|", "\\|") for cell in row] for row in rows)
    return [f"| {' | '.join(row)} |" for row in (heads, rules, *body)]
