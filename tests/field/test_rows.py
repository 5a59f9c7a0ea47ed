"""A table of published speeds is read strictly, and a mistake is one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from flashmoe_sim.field.rows import COLUMNS, MEASURED, NEEDED, read_rows
from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.io.errors import BadInput, Unusable
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.systems.table import parse_system
from tests.field.builders import DEFAULTS, row, write
from tests.support import refused

PUBLISHED = Path(__file__).parents[2] / "data" / "published"
TABLE = PUBLISHED / "field.csv"


def test_every_published_row_is_read() -> None:
    rows = read_rows(TABLE)
    assert len(rows) == len({row.id for row in rows}) == 979
    assert all(row.decode_tok_s for row in rows)


def test_every_published_row_says_where_and_when_it_was_published() -> None:
    rows = pl.read_csv(TABLE, infer_schema_length=None).rows(named=True)
    assert not [row["id"] for row in rows if not (row["source"] and row["date"] and row["source_url"])]
    assert all(row["source_url"].startswith(("https://", "http://")) for row in rows)


@pytest.mark.parametrize(
    ("column", "parsed"), [("machine", load_machine), ("model", load_model), ("setting", parse_system)]
)
def test_grids_are_written_as_the_program_takes_them(column: str, parsed: Callable[[str], object]) -> None:
    for said in pl.read_csv(PUBLISHED / "grids.csv", infer_schema_length=None)[column].unique():
        assert parsed(said)


def test_a_grid_is_five_settings_or_more_of_one_question() -> None:
    rows = pl.read_csv(PUBLISHED / "grids.csv", infer_schema_length=None, schema_overrides={"knobs": str, "notes": str})
    same = rows.group_by("grid").agg(
        pl.col("source", "who", "machine", "model", "objective", "prompt_tokens", "depth").n_unique(),
        pl.struct("setting", "knobs").n_unique().alias("settings"),
        pl.len().alias("runs"),
    )
    assert same["settings"].min() >= 5
    assert same["settings"].equals(same["runs"], check_names=False)
    assert same.drop("grid", "settings", "runs").max().row(0) == (1,) * 7
    assert set(rows["objective"]) == {"decode", "prompt"}
    assert rows["source"].str.contains("^https://|the index does not name").all()
    assert (rows["tok_s"].is_null() == rows["notes"].fill_null("").str.contains("oom")).all()
    assert (rows["tok_s"].drop_nulls() > 0).all()


def test_numbers_and_blanks(tmp_path: Path) -> None:
    one = row(tmp_path, top_k="8", model_file_gib="17.3", ram_gb_s="")
    assert (one.top_k, one.model_file_gib, one.ram_gb_s, one.pcie) == (8, 17.3, None, "")
    assert one.where == f"{tmp_path / 'rows.csv'}: line 2"


def test_other_columns_are_ignored_and_measured_ones_need_not_be_there(tmp_path: Path) -> None:
    columns = (*(name for name in COLUMNS if name not in MEASURED), "colour")
    path = write(tmp_path / "rows.csv", DEFAULTS | {"colour": "red"}, columns=columns)
    (one,) = read_rows(path)
    assert one.decode_tok_s is None
    assert not set(MEASURED) & set(NEEDED)


@pytest.mark.parametrize("missing", NEEDED)
def test_a_column_that_a_prediction_needs(tmp_path: Path, missing: str) -> None:
    path = write(tmp_path / "rows.csv", DEFAULTS, columns=tuple(name for name in COLUMNS if name != missing))
    with pytest.raises(BadInput, match=rf"rows\.csv: line 1: no column {missing};"):
        read_rows(path)


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({"ram_gib": "much"}, "line 3: ram_gib is 'much'; expected a number above 0, or nothing"),
        ({"ram_gib": "nan"}, "line 3: ram_gib is 'nan'; expected a number above 0, or nothing"),
        ({"decode_tok_s": "0"}, "line 3: decode_tok_s is '0'; expected a number above 0, or nothing"),
        ({"top_k": "4.5"}, "line 3: top_k is 4.5; expected a whole number"),
        ({"hit_rate_pct": "101"}, "line 3: hit_rate_pct is '101'; expected at most 100"),
        ({"id": ""}, "line 3: no id"),
        ({"id": "one"}, "line 3: id 'one' is there twice, first in "),
    ],
)
def test_a_bad_cell_is_one_line_with_its_line(tmp_path: Path, cells: dict[str, str], message: str) -> None:
    path = write(tmp_path / "rows.csv", DEFAULTS, DEFAULTS | {"id": "two"} | cells)
    with refused(BadInput, begins=f"{path}: {message}"):
        read_rows(path)


def test_a_row_with_other_cells_than_the_head(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.csv", DEFAULTS)
    path.write_text(path.read_text() + "two,llama.cpp\n")
    with pytest.raises(BadInput, match="line 3: more or fewer cells than the head has columns"):
        read_rows(path)


def test_a_file_that_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"\xff\xfe")
    with pytest.raises(BadInput, match="is no text in UTF-8"):
        read_rows(tmp_path / "a.csv")
    (tmp_path / "b.csv").write_text("")
    with pytest.raises(BadInput, match="line 1: no column id, engine"):
        read_rows(tmp_path / "b.csv")
    with pytest.raises(Unusable, match="cannot be read"):
        read_rows(tmp_path)
