"""`docs/reference/models.md`: what to run for every model on every machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from flashmoe_sim.geometry.named import named_models
from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.table import PRESETS
from flashmoe_sim.verbs.recommend import Recommend
from reports.pages import joined, table

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "models.md"
INTRO = """# Every model on every machine

What `sim recommend MODEL --machine MACHINE` names first, with an empty context: {models} models on {machines} machines.
Of these pairs {answers} reach a token a second; the second table lists the others. GPU and RAM: GiB in use, mapped
files included. 90%: nine of ten measured speeds should fall within this interval; one that is wider than {wide} times
is called a guess, and often waits for storage. A setting is a [system](systems.md) with its parameters; `sim system
show` says where to get its engine. A machine's name stands for all of its parts, such as 32 GB of RAM in `rtx-3060`:
[all of them](#the-machines-and-what-they-do-not-run). `sim recommend` also says what holds a machine back and what
would gain most, and takes your own parts: `--machine "rtx-3060 + ryzen-5600 + 64GiB"`.

Made by `python -m reports.models`; the numbers are in `reports/models/answers.csv`.
"""
RESULTS = Path(__file__).with_name("answers.csv")
MODELS = tuple(named_models())
LEAST_TOK_S = 1.0  # slower is not worth a row
WIDE = 5  # times from an interval's low end to its high end, from which on an answer is called a guess


def answers(model: str, machines: tuple[str, ...] = PRESETS) -> list[dict[str, Any]]:
    """The first choice for a model on each machine."""
    cells = Recommend(model=model, machine=machines[0]).run_each(machines, [model])
    return [cell.as_row() for cell in cells.cells]


def rounded(rows: list[dict[str, Any]]) -> pl.DataFrame:
    """Answers with four digits."""
    return pl.DataFrame(rows, infer_schema_length=None).with_columns(pl.selectors.float().round_sig_figs(4))


def markdown(answers: pl.DataFrame) -> str:
    """The page: machines with a GPU of its own first, then Macs and others, on each the fastest model first."""
    runs = answers.filter(pl.col("tok_s") >= LEAST_TOK_S)
    machines = sorted(PRESETS, key=_place)
    fastest = sorted(runs.iter_rows(named=True), key=lambda row: (machines.index(row["machine"]), -row["tok_s"]))
    cells = [
        (
            row["machine"],
            row["model"],
            _two(row["tok_s"]),
            _interval(row["tok_s_lo"], row["tok_s_hi"]),
            *(f"{row[name] / GIB:.1f}" for name in ("gpu_bytes", "held_bytes")),
            row["setting"],
            f"`{row['command']}`".replace("|", "\\|"),
        )
        for row in fastest
    ]
    page = joined(
        INTRO.format(models=answers["model"].n_unique(), machines=len(PRESETS), answers=len(runs), wide=WIDE),
        table(("machine", "model", "tok/s", "90%", "GPU", "RAM", "setting", "command"), cells, left=(0, 1, 6, 7)),
        "## The machines, and what they do not run",
        table(
            ("machine", "what", "less than a token a second", "does not run"),
            (_of_machine(name, answers) for name in machines),
            left=(0, 1, 2, 3),
        ),
    )
    return f"{page}\n"


def _of_machine(name: str, answers: pl.DataFrame) -> tuple[str, ...]:
    here = answers.filter(pl.col("machine") == name)
    which = (pl.col("tok_s") < LEAST_TOK_S, pl.col("tok_s").is_null())
    return name, load_machine(name).title, *(", ".join(here.filter(one)["model"]) or "-" for one in which)


def _place(name: str) -> tuple[int, int]:
    """Machines whose GPU has a memory of its own come first, those without a GPU last."""
    machine = load_machine(name)
    return (2 if machine.gpu is None else int(machine.unified), PRESETS.index(name))


def _two(number: float) -> str:
    """Two digits: more would be noise."""
    return f"{float(f'{number:.2g}'):g}"


def _interval(least: float, most: float) -> str:
    return f"{_two(least)}-{_two(most)}{', a guess' if most > WIDE * least else ''}"
