"""All predictions, as groups and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path

import polars as pl

from reports.fidelity import hot_cache, hot_window, kimi_bank, layer_budget, phone, qwen_bank, runs, slot_remap
from reports.fidelity.per_token import PerToken
from reports.fidelity.prediction import Group

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results.csv"


def published() -> tuple[Group, ...]:
    """Predictions of published tables, fitted on a row or two of each and never on the row that is reported."""
    return (
        hot_cache.group(),
        hot_window.group(),
        qwen_bank.bank_group(),
        qwen_bank.topk_group(),
        kimi_bank.group(),
        slot_remap.group(),
        layer_budget.group(),
    )


@cache
def all_groups() -> tuple[Group, ...]:
    """Every group of the report, in its order."""
    return (runs.group(), *phone.groups(), *published())


def frame(groups: Sequence[Group]) -> pl.DataFrame:
    """A row for every prediction."""
    rows = [asdict(one) | {"error": one.error} for group in groups for one in group.predictions]
    return pl.DataFrame(rows, infer_schema_length=None).with_columns(pl.selectors.float().round(5))


def shown_run() -> PerToken:
    """The run that the figure shows token by token."""
    return next(each for each in phone.results() if each.held_out)
