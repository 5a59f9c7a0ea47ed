"""What was answered before it was used."""

from __future__ import annotations

import polars as pl

from reports.field import first
from reports.field.report import all_rows


def test_every_answer_is_of_a_published_row() -> None:
    lines, rows = pl.read_csv(first.TABLE), {row.id for row in all_rows()}
    assert lines["id"].is_unique().all()
    assert set(lines["id"]) <= rows
    assert (lines["lo"] < lines["tok_s"]).all()
    assert (lines["tok_s"] < lines["hi"]).all()
    assert len(first.joined_with(all_rows(), lines)) == len(lines)
