"""The reference estimator of the patched runtime: the same numbers from the same traces.

`estimator/*.json` are the outputs of its cache estimator (commit 64e25509b) on recorded runs: uniform static banks, a
refillable LRU, and a global static set under byte budgets.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.io.errors import OutOfRange
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.table import parse_policy
from flashmoe_sim.residency.counts import Counts
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.workload import Setup, Workload, prepare
from flashmoe_sim.trace.load import load_trace

DATA = Path(__file__).parents[2] / "data"
MIB = 1 << 20
OVERFLOWS = {("prose-ub4-bank64", 24)}  # a call requests more experts than that bank has slots


@cache
def workload(name: str) -> Workload:
    run = reference(name)["trace"]["path"].removesuffix("/trace.jsonl.gz")
    model = DATA / run.split("/")[0] / "manifest.json"
    return prepare(load_trace(DATA / run / "trace.jsonl.gz"), load_model(model))


@cache
def reference(name: str) -> dict:
    return json.loads((DATA / "estimator" / f"{name}.json").read_text())


NAMES = sorted(path.stem for path in (DATA / "estimator").glob("*.json"))


def rows(kind: str) -> list:
    return [pytest.param(name, row, id=f"{name}-{row.get('bank_size', row.get('budget_gib'))}")
            for name in NAMES for row in reference(name)["trace"][kind]]  # fmt: skip


def assert_equal(counts: Counts, row: dict) -> None:
    total = counts.total()
    assert total["hit_rate"] == pytest.approx(row["expert_hit_rate"], rel=1e-12)
    assert total["full_hit_rate"] == pytest.approx(row["full_hit_rate"], rel=1e-12)
    assert total["misses_per_token"] == pytest.approx(row["misses_per_token"], rel=1e-12)
    assert total["bytes_per_token"] / MIB == pytest.approx(row["mib_per_token"], rel=1e-12)
    worst = sorted(counts.by_layer(), key=lambda layer: (-layer["misses"], layer["layer"]))
    assert [(layer["layer"], layer["misses"], layer["calls"]) for layer in worst] == [
        (layer["layer"], layer["misses"], layer["calls"]) for layer in row["top_miss_layers"]
    ]


@pytest.mark.parametrize(("name", "row"), rows("uniform_static"))
def test_uniform_static(name: str, row: dict) -> None:
    """The estimator breaks ties by first request, which decides how many calls hit in full, not how many experts."""
    setup = Setup(Bank(slots=row["bank_size"]), parse_policy("static:ties_by=first-seen"), "runtime")
    assert_equal(replay(workload(name), setup).counts, row)
    by_number = replay(workload(name), Setup(Bank(slots=row["bank_size"]), parse_policy("static"), "runtime")).counts
    assert by_number.total()["hit_rate"] == pytest.approx(row["expert_hit_rate"], rel=1e-12)


@pytest.mark.parametrize(("name", "row"), rows("lru"))
def test_refillable_lru(name: str, row: dict) -> None:
    """The estimator stamps a call's hits before its misses, which the runtime itself does not."""
    setup = Setup(Bank(slots=row["bank_size"]), parse_policy("lru:stamp=hits-first"), "protected")
    if (name, row["bank_size"]) in OVERFLOWS:
        with pytest.raises(OutOfRange, match="slot-bank overflow"):
            replay(workload(name), setup)
        return
    counts = replay(workload(name), setup).counts
    assert_equal(counts, row)
    assert counts.resident_bytes == row["resident_bytes"]


@pytest.mark.parametrize(("name", "row"), rows("global_static"))
def test_global_static(name: str, row: dict) -> None:
    setup = Setup(Bank(budget_bytes=row["budget_bytes"]), parse_policy("static:global"), "runtime")
    counts = replay(workload(name), setup).counts
    assert_equal(counts, row)
    assert counts.resident_bytes == row["used_bytes"]
