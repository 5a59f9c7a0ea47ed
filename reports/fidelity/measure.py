"""All predictions, as groups and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path

import polars as pl

from reports.fidelity import phone, published, runs
from reports.fidelity.per_token import PerToken
from reports.fidelity.prediction import Group

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results.csv"


@cache
def all_groups() -> tuple[Group, ...]:
    """Every group of the report, in its order."""
    return (runs.group(), *phone.groups(), *published.groups())


def frame(groups: Sequence[Group]) -> pl.DataFrame:
    """A row for every prediction."""
    rows = [asdict(one) | {"error": one.error} for group in groups for one in group.predictions]
    return pl.DataFrame(rows, infer_schema_length=None).with_columns(pl.selectors.float().round(5))


def shown_run() -> PerToken:
    """The run that the figure shows token by token."""
    return next(each for each in phone.results() if each.held_out)
