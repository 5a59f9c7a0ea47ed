"""The picture of a sweep: a PNG for every kind of rows there can be."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import pytest

from flashmoe_sim.report.figures import results
from flashmoe_sim.schema import RESULT_COLUMNS
from tests.report.figures.made import HOSTILE, Row, row, timed

NO_VALUES = dict.fromkeys(column.name for column in RESULT_COLUMNS)


def height(rows: list[Row], path: Path) -> int:
    """Of the picture in pixels."""
    results.draw([NO_VALUES | one for one in rows], path)
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    wide, tall = struct.unpack(">II", content[16:24])
    assert wide > 1200
    return int(tall)


@pytest.mark.parametrize(
    "rows",
    [
        [row(16), row(32), row(16, "fifo"), row(32, "fifo")],
        [row(16)],
        [row("4GiB"), row("8GiB")],
        [row("1/16"), row("50%")],
        [row(16, resident_bytes=None)],
        [row(16, best_hit_rate=None)],
        [row(16, "min")],
        [row(16, f"policy-{number}") for number in range(25)],
        [timed(16, tok_s=None), timed(32, tok_s=None)],
        [row(16, name, trace=name, scope="global") for name in HOSTILE],
        [row(16, trace_id=str(number), trace=str(number)) for number in range(120)],
        [row(bank) for bank in range(1, 257)],
    ],
    ids=[
        "two",
        "one",
        "bytes",
        "shares",
        "no model",
        "no ceiling",
        "min alone",
        "many policies",
        "no machine that it fits",
        "foreign names",
        "many traces",
        "many banks",
    ],
)
def test_a_picture_of(rows: list[Row], tmp_path: Path) -> None:
    assert 600 < height(rows, tmp_path / "a.png") < 3000


def test_speeds_and_points_above_lru_are_below_the_hit_rates(tmp_path: Path) -> None:
    alone = height([row(16), row(16, "fifo")], tmp_path / "a.png")
    with_speeds = height([timed(16), timed(16, "fifo")], tmp_path / "b.png")
    two_machines = [timed(16) | {"machine": name} for name in ("one", "two")]
    assert alone + 500 < with_speeds < height(two_machines, tmp_path / "c.png") - 500
    two = [row(16, policy, trace=name, trace_id=name) for name in "ab" for policy in ("lru", "fifo")]
    of_one_policy = [one for one in two if one["policy"] == "lru"]
    assert height(of_one_policy, tmp_path / "d.png") + 150 < height(two, tmp_path / "e.png")


def test_banks_in_another_unit_are_left_out(tmp_path: Path) -> None:
    rows = [row(16), row(32)]
    assert height(rows, tmp_path / "a.png") == height([*rows, row("4GiB")], tmp_path / "b.png")


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert results.missing() == ""
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    assert results.missing() == ("figures and pages need the package vl-convert-python: pip install '.[report]'")
