"""Predictions from a file: by hand, as the oracle, and what is refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flashmoe_sim.io.errors import Conflict, Incomplete, Malformed, Missing, OutOfRange
from flashmoe_sim.prefetchers.base import Predictions
from flashmoe_sim.prefetchers.recorded import Recorded
from flashmoe_sim.prefetchers.table import parse_prefetcher
from flashmoe_sim.residency.workload import prepare
from flashmoe_sim.sweep.plan import plan_predictors
from flashmoe_sim.trace.routing import RoutingTrace
from tests.residency.builders import run, trace_of
from tests.residency.compare import predictions_of
from tests.residency.test_twins import random_workload
from tests.support import refused

OF_ACCURACY = {"prefetch_calls", "prefetch_precision", "prefetch_recall"}
# Two steps of two layers; the last call of layer 1 has two tokens.
TRACE = trace_of([(0, [3, 1], 1), (1, [2, 0], 1), (0, [1, 4], 1), (1, [5, 6, 6, 7], 2)], 10)


def written(path: Path, *lines: dict[str, Any] | str) -> Path:
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def as_lines(trace: RoutingTrace, predictions: Predictions) -> list[dict[str, Any]]:
    assert predictions.target is not None
    lines = []
    for place, (after, target) in enumerate(zip(predictions.after, predictions.target, strict=True)):
        experts = predictions.expert[predictions.offset[place] : predictions.offset[place + 1]].tolist()
        line: dict[str, Any] = {"ahead": {str(target - after): experts}}
        if after >= 0:
            line |= {"step": int(trace.steps[after]), "layer": int(trace.layer[after])}
        lines.append(line)
    return lines


def test_by_hand(tmp_path: Path) -> None:
    """In any order of lines; other lines and keys are passed over; nothing is said of calls after the last."""
    path = written(
        tmp_path / "said.jsonl.gz",
        {"step": 1, "layer": 0, "ahead": {"1": [5, 6, 7], "2": [9]}, "experts": [1, 4], "seq": 2},
        {"step": 0, "layer": 0, "ahead": {"3": [8, 7], "1": [2]}},
        {"step": 0, "layer": 1, "experts": [2, 0]},
        "",
        {"step": 5, "layer": 0, "ahead": {"1": [0]}},
        {"ahead": {"1": [3]}},
    )
    expected = [(-1, 0, [3]), (0, 1, [2]), (0, 1, [8, 7]), (2, 1, [5, 6, 7])]
    assert predictions_of(Recorded(str(path)), TRACE) == expected
    assert predictions_of(Recorded(str(path), calls=3), TRACE) == [(0, 1, [8, 7])]
    narrow = [(-1, 0, [3]), (0, 1, [2]), (0, 1, [8, 7]), (2, 1, [5, 6])]
    assert predictions_of(Recorded(str(path), width=1), TRACE) == narrow, "one for each of two tokens"


@pytest.mark.parametrize("contract", ["runtime", "protected", "atomic"])
@pytest.mark.parametrize("seed", [1, 2, 4])
def test_the_truth_counts_as_the_oracle_and_nothing_as_no_predictor(tmp_path: Path, contract: str, seed: int) -> None:
    workload = random_workload(seed)
    true = as_lines(workload.trace, parse_prefetcher("oracle-1").predict(workload.trace))
    empty = [line | {"ahead": {calls: [] for calls in line["ahead"]}} for line in true]
    for name, lines, like in (("true", true, "oracle-1"), ("empty", empty, "none")):
        path = written(tmp_path / name, *lines)
        for slots in range(min(workload.trace.longest_call, most := max(workload.n_experts)), most + 1):
            found, wanted = (
                run(workload, slots, contract=contract, prefetch=spec).counts.total()
                for spec in (f"recorded:file={path}", like)
            )
            differ = {key for key in wanted if found[key] != wanted[key]}
            assert differ <= (OF_ACCURACY if like == "none" else set())


def test_all_leaves_it_out() -> None:
    assert "recorded" not in [one.name for one in plan_predictors("all")]


def test_equal_predictions_have_equal_content(tmp_path: Path) -> None:
    """Whatever the file's name and what else stands in it; so rows have the same ids."""
    line = {"step": 0, "layer": 0, "ahead": {"1": [2]}}
    one, same, other = (
        Recorded(str(written(tmp_path / name, content)))
        for name, content in (("a", line), ("b", line | {"seq": 9}), ("c", line | {"ahead": {"1": [3]}}))
    )
    assert one.contents() == same.contents() != other.contents()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "line 2: "),
        ("[1]", "expected an object"),
        ({"step": 1, "ahead": {"1": [1]}}, "one of step and layer"),
        ({"step": -1, "layer": 0, "ahead": {"1": [1]}}, "step is -1"),
        ({"step": 1, "layer": True, "ahead": {"1": [1]}}, "layer is True"),
        ({"step": 1, "layer": 40000, "ahead": {"1": [1]}}, "layer is 40000"),
        ({"step": 1, "layer": 0, "ahead": [1]}, "ahead is [1]"),
        ({"step": 1, "layer": 0, "ahead": {"next": [1]}}, "'next'"),
        ({"step": 1, "layer": 0, "ahead": {"0": [1]}}, "'0'"),
        ({"step": 1, "layer": 0, "ahead": {"1": 5}}, "ahead[1] is 5"),
        ({"step": 1, "layer": 0, "ahead": {"1": [1.0]}}, "ahead[1] is [1.0]; expected whole numbers 0 to 32767"),
        ({"step": 1, "layer": 0, "ahead": {"1": [-1]}}, "ahead[1] is [-1]; expected whole numbers 0 to 32767"),
        ({"step": 1, "layer": 0, "ahead": {"1": [1]}, "experts": "1"}, "experts is '1'"),
        ('{"step": 1, "step": 1, "layer": 0, "ahead": {}}', "twice"),
    ],
)
def test_bad_lines(tmp_path: Path, line: dict[str, Any] | str, says: str) -> None:
    path = written(tmp_path / "said.jsonl", {"step": 0, "layer": 0, "ahead": {"1": [1]}}, line)
    with refused(Malformed, f"{path}: line 2: ", says):
        Recorded(str(path))


def test_files_without_predictions(tmp_path: Path) -> None:
    with pytest.raises(Incomplete, match="give file=FILE"):
        parse_prefetcher("recorded")
    with pytest.raises(Missing, match="no such file"):
        Recorded(str(tmp_path / "none"))
    with pytest.raises(Malformed, match="holds no predictions"):
        Recorded(str(written(tmp_path / "trace", {"step": 0, "layer": 0, "experts": [1]})))
    good = written(tmp_path / "good", {"step": 0, "layer": 0, "ahead": {"1": [1]}})
    for parameter in ("calls", "width"):
        with pytest.raises(OutOfRange, match=f"{parameter}=-1 is not in 0..2147483647"):
            parse_prefetcher(f"recorded:file={good}:{parameter}=-1")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ({"step": 9, "layer": 0, "ahead": {"1": [1]}}, "predicts for no call"),
        ({"step": 0, "layer": 0, "ahead": {"1": [10]}}, "expert 10 of layer 1, which has 10"),
        (
            {"step": 0, "layer": 0, "ahead": {"1": [1]}, "experts": [1, 3]},
            "line 1: step 0, layer 0: uses",
        ),
    ],
)
def test_predictions_of_another_run(tmp_path: Path, line: dict[str, Any], says: str) -> None:
    with refused(Conflict, says):
        Recorded(str(written(tmp_path / "said", line))).predict(TRACE)


def test_two_calls_of_a_layer_in_one_step(tmp_path: Path) -> None:
    path = written(tmp_path / "said", {"step": 0, "layer": 0, "ahead": {"1": [1]}})
    with pytest.raises(Conflict, match="has 2 such calls"):
        Recorded(str(path)).predict(TRACE.with_(step=np.zeros(4, np.int32)))
    assert run(prepare(TRACE), 2, prefetch=f"recorded:file={path}").counts.total()["prefetch_issued"] == 1
