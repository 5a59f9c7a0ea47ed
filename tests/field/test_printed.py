"""The intervals that the commands print hold as often as they say."""

from __future__ import annotations

import polars as pl
import pytest

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.machines.belief import errors
from flashmoe_sim.verbs.compare import Compare
from reports.field.depth import attended
from reports.field.errors import MOST
from reports.field.machine import built_of
from reports.field.model import model_of
from reports.field.printed import printed, system_of
from reports.field.printed_page import TABLE, WINS, inside
from reports.field.report import ROWS as PUBLISHED
from reports.field.report import judged_rows
from reports.field.rows import read_rows

ROWS = pl.read_csv(TABLE)
NAMED = 3  # rows of different systems, asked again


@pytest.mark.parametrize("machine", ["all", "parts", "presets"])
def test_nine_of_ten_printed_intervals_hold(machine: str) -> None:
    on = pl.col("machine") == "parts"
    rows = ROWS.filter({"all": pl.lit(value=True), "parts": on, "presets": ~on}[machine])
    assert len(rows) > 20
    assert 0.85 <= inside(rows) <= 0.95


def test_without_the_machine_of_a_row_most_hold_too() -> None:
    assert inside(ROWS, "left_out_") > 0.85
    assert ((ROWS["left_out_hi"] / ROWS["left_out_lo"]).log() < 2 * MOST * 1.645 * 2).all()


def test_the_table_has_what_the_commands_print() -> None:
    """A row of each of some systems, through the function behind `sim compare`."""
    by_id = {row.id: row for row in judged_rows() if not attended(row)}
    known = pl.col("system").is_in(["all-gpu", "placed", "placed-ik"]) & pl.col("id").is_in(list(by_id))
    asked = ROWS.filter((pl.col("machine") == "parts") & known)
    for one in asked.unique("system", keep="first", maintain_order=True).head(NAMED).iter_rows(named=True):
        row = by_id[one["id"]]
        asked = Compare(model=model_of(row), machine=built_of(row).machine, systems=[system_of(row)], context=0)
        (found,) = asked.run().rows
        assert found.tok_s == pytest.approx(one["tok_s"], rel=1e-3)
        assert (found.tok_s_lo, found.tok_s_hi) == pytest.approx((one["lo"], one["hi"]), rel=1e-2)


@pytest.mark.parametrize(("name", "within"), [("luka-2k-cpu", 1.1), ("v620-cpu", 1.5)])
def test_small_steps_on_a_cpu(name: str, within: float) -> None:
    """Published speeds of Qwen3.8-Flash-Next on CPUs alone; the second had half of its cores."""
    row = next(row for row in read_rows(PUBLISHED) if row.id == name)
    (one,) = printed([row])
    assert row.decode_tok_s is not None
    assert one.found is not None
    assert 1 / within < one.found.tok_s / row.decode_tok_s < within


def test_the_file_of_errors_says_what_the_table_shows() -> None:
    checked = errors()["checked"]
    assert (checked["rows"], checked["inside"]) == (len(ROWS), pytest.approx(inside(ROWS), abs=6e-4))


def test_what_wins_nine_of_ten_draws_is_faster_nine_times_of_ten() -> None:
    sure = pl.read_csv(WINS).filter(pl.col("share") >= 0.9)
    assert len(sure) >= 19
    assert sure["held"].mean() >= 0.85  # type: ignore[operator]


@pytest.mark.parametrize(
    ("of", "asked"),
    [
        ("neu-pc1-1-cache", "neurall"),  # what it had learnt was kept
        ("neu-pol-fork329", "neurall:slots=100:lead=-2:admit=0:profile=none"),
        ("neu-pol-default,334", "neurall:slots=100:admit=0:profile=none"),
        ("neu-pol-default,335", "neurall:slots=100:lead=-2:profile=none"),
        ("neu-pred-0", "neurall:profile=none"),
        ("neu-hit-src-1", "neurall:lead=-2:admit=0:profile=none"),
        ("neu-hit-src-2", "neurall:swaps=8:lead=4:admit=0:profile=none"),
        *((row, "no setting") for row in ("neu-pol-lru330", "neu-pol-slru332", "neu-pol-aging333", "neu-pred-1")),
        ("neu-pred-2", "no setting"),
        ("neu-hit-src-0", "did not wait"),
    ],
)
def test_rows_of_neurall_are_asked_as_their_builds_were(of: str, asked: str) -> None:
    (row,) = (one for one in judged_rows() if one.id == of)
    if asked.startswith("neurall"):
        assert system_of(row).spec == asked
    else:
        with pytest.raises(BadInput, match=asked):
            system_of(row)
