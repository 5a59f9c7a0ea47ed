"""What was predicted before it was used."""

from __future__ import annotations

import polars as pl

from reports.field import unseen
from reports.field.report import ROWS


def test_every_prediction_is_of_a_row_of_the_file() -> None:
    rows, of_file = pl.read_csv(unseen.TABLE), pl.read_csv(ROWS, infer_schema_length=None)
    assert rows["id"].is_unique().all()
    assert set(rows["id"]) <= set(of_file["id"])
    assert (rows["lo"] < rows["tok_s"]).all()
    assert (rows["tok_s"] < rows["hi"]).all()
    assert f"{len(rows)} rows of" in unseen.section(rows, of_file)


def test_scores_by_hand() -> None:
    rows = pl.DataFrame(
        {"id": ["a", "b", "c"], "round": [1, 1, 2], "tok_s": [10.0, 20.0, 50.0], "lo": [5.0] * 3, "hi": [20.0] * 3}
    )
    of_rows = {"machine_id": ["m", "m", "n"], "strategy": ["x", "x", "y"], "decode_tok_s": [8.0, 20.0, 21.0]}
    text = unseen.section(rows, rows.select("id").with_columns(**{name: pl.Series(of) for name, of in of_rows.items()}))
    assert "3 rows of 2 machines" in text
    assert "| all | 3 | 25% | 67% | 67% | 4.0x |" in text
    assert "| round 1 | 2 | 12% | 100% | 100% | 4.0x |" in text
    assert "| x | 2 | 12% | 100% | 100% | 4.0x |" in text
