"""Pairs of rows with and without a cache: who pairs with whom, what they say, and that no order is claimed wrongly."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashmoe_sim.field.rows import FieldRow, read_rows
from reports.field.gains import pairs_of
from reports.field.pairs import Pair, Speed, pairs
from tests.field.builders import DEFAULTS, published, residuals, write

ROW = DEFAULTS | {"machine_id": "m"}
CACHE = {"engine": "some cache", "strategy": "vram_lru"}
SPEED = Speed(20, 10, 40)
# Pairs whose order is wrong although their intervals do not overlap, with the reason.
BROKEN: dict[str, str] = {}


def rows(folder: Path, *cells: dict[str, str]) -> list[FieldRow]:
    return read_rows(write(folder / "rows.csv", *(ROW | {"id": str(n)} | cell for n, cell in enumerate(cells))))


def found(folder: Path, *cells: dict[str, str]) -> list[str]:
    table = rows(folder, *cells)
    return [one.name for one in pairs(table, {row.id: SPEED for row in table})]


def test_every_row_with_a_cache_pairs_with_every_row_without(tmp_path: Path) -> None:
    plain = {"strategy": "ot_regex"}
    cells = ({}, plain, CACHE, CACHE | {"strategy": "vram_static_profile"}, {"strategy": "page_cache_mmap"})
    assert found(tmp_path, *cells) == ["2 / 0", "2 / 1", "3 / 0", "3 / 1"]


@pytest.mark.parametrize(
    "other",
    [
        {"machine_id": "n"},
        {"machine_id": ""},
        {"model": "gpt-oss-20b"},
        {"quant": "Q8_0"},
        {"context": "4096"},
        {"gpu": "RTX 4090"},
        {"engine": "another program"},
        {"engine": "some cache"},
    ],
)
def test_rows_that_differ_in_more_than_the_cache_are_no_pair(tmp_path: Path, other: dict[str, str]) -> None:
    assert found(tmp_path, {}, CACHE) == ["1 / 0"]
    assert not found(tmp_path, other, CACHE)


def test_a_program_with_its_cache_off_pairs_within_its_series(tmp_path: Path) -> None:
    off = {"engine": "some cache", "series": "s"}
    assert found(tmp_path, off, CACHE | {"series": "s"}) == ["1 / 0"]
    assert not found(tmp_path, off, CACHE | {"series": "t"})


def test_an_allocated_context_pairs_with_an_empty_one_and_a_filled_one_does_not(tmp_path: Path) -> None:
    assert found(tmp_path, {"context": "131072"}, CACHE) == ["1 / 0"]
    assert not found(tmp_path, {"context": "131072", "flags": "-d 131072"}, CACHE)


def test_a_row_without_a_prediction_is_in_no_pair(tmp_path: Path) -> None:
    table = rows(tmp_path, {}, CACHE)
    assert not pairs(table, {"0": SPEED})


def test_gain_order_and_overlap_by_hand(tmp_path: Path) -> None:
    """Measured 30 with and 20 without. Predicted 10 (5 to 20) and 40 (20.1 to 80): a wrong order, and claimed."""
    cached, plain = rows(tmp_path, CACHE | {"decode_tok_s": "30"}, {})
    one = Pair(cached, plain, Speed(10, 5, 20), Speed(40, 20.1, 80))
    assert (one.measured, one.predicted) == (1.5, 0.25)
    assert (one.ordered, one.overlap, one.holds) == (False, False, False)
    touching = Pair(cached, plain, Speed(10, 5, 20), Speed(40, 20, 80))
    assert (touching.ordered, touching.overlap, touching.holds) == (False, True, True)
    right = Pair(cached, plain, Speed(40, 30, 50), Speed(10, 5, 20))
    assert (right.ordered, right.overlap, right.holds) == (True, False, True)
    lo, hi = touching.interval
    assert lo == pytest.approx(0.25 / 2**2**0.5)
    assert hi == pytest.approx(0.25 * 2**2**0.5)


def test_of_every_pair_the_order_is_right_or_not_claimed() -> None:
    every = pairs_of(list(published().values()), residuals())
    assert len(every) >= 135
    assert {one.name for one in every if not one.holds} == set(BROKEN)


def test_pairs_of_many_caches_are_there() -> None:
    systems = {one.with_cache.system for one in pairs_of(list(published().values()), residuals())}
    assert systems >= {"hot-cache", "neurall", "moe-cache", "static-profile", "nvmoe", "ktransformers", "cached"}
