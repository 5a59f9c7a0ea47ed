"""The columns: named once, described, and each known to the code that fills it."""

from __future__ import annotations

import pytest

from flashmoe_sim.residency.workload import prepare
from flashmoe_sim.schema import COUNTS, IDENTITY, PREDICTED, RESULT_COLUMNS, TIMING, Column
from flashmoe_sim.sweep.task import Task, row_of
from tests.residency.builders import geometry_of, one_layer, run, trace_of


def test_names_are_given_once() -> None:
    names = [column.name for column in RESULT_COLUMNS]
    assert len(set(names)) == len(names)
    predicted = [column.name for column in PREDICTED]
    assert len(set(predicted)) == len(predicted)


@pytest.mark.parametrize("column", RESULT_COLUMNS + PREDICTED, ids=lambda column: column.name)
def test_every_column_is_described(column: Column) -> None:
    assert column.name.isidentifier()
    assert column.name == column.name.lower()
    assert column.dtype in {"str", "int", "float"}
    assert bool(column.unit) == (column.dtype != "str")
    assert column.meaning
    assert not column.meaning.endswith(".")


def test_units_are_told_by_names() -> None:
    for column in COUNTS:
        if "bytes" in column.name:
            assert column.unit == "bytes"
        if column.name.endswith("_rate") or "_over_" in column.name:
            assert column.unit == "1"
        if column.unit == "bytes" and "_per_" not in column.name:
            assert column.dtype == "int"


def test_a_row_has_the_values_of_its_columns() -> None:
    workload = prepare(trace_of(one_layer([[0], [1], [0]]), 4), geometry_of({0: 10}, 4))
    replayed = run(workload, 1)
    task = Task(workload, replayed.setup)
    counts = replayed.counts.total()
    row = row_of(task, counts, best=counts)
    assert set(task.identity()) == {column.name for column in IDENTITY}
    assert set(counts) == {column.name for column in COUNTS} - {"best_hit_rate", "best_bytes_per_token"}
    types = {"str": str, "int": int, "float": float}
    unknown = [column.name for column in IDENTITY + COUNTS if type(row[column.name]) is not types[column.dtype]]
    assert unknown == ["bank_bytes", "prefetch_precision", "prefetch_recall"]  # in slots, and there is no predictor
    assert {row[column.name] for column in TIMING} == {None}
    best = row_of(task, counts)
    assert (best["best_hit_rate"], best["best_bytes_per_token"]) == (None, None)
