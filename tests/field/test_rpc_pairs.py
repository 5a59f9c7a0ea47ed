"""Machines that a network joins, against published speeds of one and of several."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from statistics import median

import pytest

import flashmoe_sim.api as sim
from flashmoe_sim.io.errors import TooLarge
from tests.support import refused

TABLE = Path(__file__).parents[2] / "data" / "published" / "rpc_pairs.csv"
ROWS = [row for row in csv.DictReader(TABLE.read_text("utf-8").splitlines()) if row["as_model"]]


@cache
def predicted(model: str, machine: str) -> tuple[float, float, float]:
    """Tokens a second with their interval."""
    row = sim.compare(model=model, machine=machine, systems="all-gpu").row(0, named=True)
    return row["tok_s"], row["tok_s_lo"], row["tok_s_hi"]


def joined(row: dict[str, str]) -> tuple[float, float, float]:
    return predicted(row["as_model"], f"{row['number']}x {row['machine']} over {row['network'] or '10gbe'}")


@pytest.mark.filterwarnings("ignore:no trace of")
def test_what_a_further_machine_costs_a_token() -> None:
    """The seconds that each machine after the first adds are within the entry's interval, and right in the middle."""
    off = []
    for row in ROWS:
        if row["tok_s_one"]:
            one = predicted(row["as_model"], row["machine"])[0]
            measured_s = 1 / float(row["tok_s"]) - 1 / float(row["tok_s_one"])
            off.append((1 / joined(row)[0] - 1 / one) / measured_s)
    assert len(off) == 6
    assert median(off) == pytest.approx(1, abs=0.25)


@pytest.mark.filterwarnings("ignore:no trace of")
def test_models_that_do_not_fit_one_machine() -> None:
    apart = []
    for row in ROWS:
        tok_s, lo, hi = joined(row)
        assert lo <= float(row["tok_s"]) <= hi, row
        if not row["tok_s_one"]:
            apart.append(tok_s / float(row["tok_s"]))
            with refused(TooLarge, "all-gpu: takes"):
                sim.compare(model=row["as_model"], machine=row["machine"], systems="all-gpu")
    assert len(apart) == 3
    assert all(0.8 < ratio < 1.25 for ratio in apart)
