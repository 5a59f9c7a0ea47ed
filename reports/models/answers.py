"""What `sim recommend` names first for every named model on every preset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from flashmoe_sim.geometry.named import named_models
from flashmoe_sim.machines.table import PRESETS
from flashmoe_sim.verbs.recommend import Recommend

RESULTS = Path(__file__).with_name("answers.csv")
MODELS = tuple(named_models())


def answers(model: str, machines: tuple[str, ...] = PRESETS) -> list[dict[str, Any]]:
    """The first choice for a model on each machine."""
    cells = Recommend(model=model, machine=machines[0]).run_each(machines, [model])
    return [cell.as_row() for cell in cells.cells]


def rounded(rows: list[dict[str, Any]]) -> pl.DataFrame:
    """Answers with four digits."""
    return pl.DataFrame(rows, infer_schema_length=None).with_columns(pl.selectors.float().round_sig_figs(4))
