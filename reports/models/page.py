"""`docs/reference/models.md`: what to run for every model on every machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from flashmoe_sim.geometry.named import named_models
from flashmoe_sim.io.cells import brief_interval, speed
from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.table import PRESETS
from flashmoe_sim.verbs.recommend import Recommend
from reports.pages import joined, table

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "models.md"
INTRO = """# Every model on every machine

What `sim recommend MODEL --machine MACHINE` names first, with an empty context: {models} models on {machines} machines;
of these pairs {answers} run. GPU and RAM: GiB in use, without the page cache. 90%: nine of ten measured speeds should
fall within this interval. A setting is a [system](systems.md) with its parameters; `sim system show` says where to get
its engine. `sim recommend` also says what holds a machine back and what would gain most, and takes your own parts:
`--machine "rtx-3060 + ryzen-5600 + 64GiB"`.

Made by `python -m reports.models`; the numbers are in `reports/models/answers.csv`.
"""
RESULTS = Path(__file__).with_name("answers.csv")
MODELS = tuple(named_models())


def answers(model: str, machines: tuple[str, ...] = PRESETS) -> list[dict[str, Any]]:
    """The first choice for a model on each machine."""
    cells = Recommend(model=model, machine=machines[0]).run_each(machines, [model])
    return [cell.as_row() for cell in cells.cells]


def rounded(rows: list[dict[str, Any]]) -> pl.DataFrame:
    """Answers with four digits."""
    return pl.DataFrame(rows, infer_schema_length=None).with_columns(pl.selectors.float().round_sig_figs(4))


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
            f"`{row['command']}`".replace("|", "\\|"),
        )
        for row in fastest
    ]
    cannot = answers.filter(pl.col("tok_s").is_null())
    page = joined(
        INTRO.format(models=answers["model"].n_unique(), machines=len(PRESETS), answers=len(runs)),
        table(("machine", "model", "tok/s", "90%", "GPU", "RAM", "setting", "command"), cells, left=(0, 1, 6, 7)),
        "## The machines, and which models no engine runs there",
        table(("machine", "what", "does not run"), (_of_machine(name, cannot) for name in PRESETS), left=(0, 1, 2)),
    )
    return f"{page}\n"


def _of_machine(name: str, cannot: pl.DataFrame) -> tuple[str, ...]:
    refused = cannot.filter(pl.col("machine") == name)["model"]
    return name, load_machine(name).title, ", ".join(refused) or "-"
