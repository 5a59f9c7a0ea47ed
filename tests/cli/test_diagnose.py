"""`sim diagnose`: the verdict first, then the numbers; JSON is the diagnosis of the Python function."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashmoe_sim.ceilings.diagnose import diagnose
from flashmoe_sim.policies.bank import parse_bank
from flashmoe_sim.policies.table import parse_policy
from flashmoe_sim.residency.workload import Setup
from flashmoe_sim.trace.store import write_store
from flashmoe_sim.verbs.given import workload_of
from tests.residency.builders import trace_of
from tests.support import document, printed_by


@pytest.mark.parametrize("scope", ["layer", "global"])
def test_json_is_the_diagnosis(capsys: pytest.CaptureFixture[str], scope: str) -> None:
    options = ["--bank", "24", "--policy", "fifo", "--contract", "protected", "--scope", scope]
    answer = document(capsys, "diagnose", "python-256", *options)
    setup = Setup(parse_bank("24"), parse_policy("fifo"), "protected", scope=scope)
    found = diagnose(workload_of("python-256"), setup)
    assert answer["diagnosis"] == found.to_dict()
    assert answer["identity"]["policy"] == "fifo"
    assert answer["identity"]["scope"] == scope


def test_without_a_trace_the_first_of_the_catalogue(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed_by(capsys, "diagnose", "--bank", "64") == printed_by(
        capsys, "diagnose", "python-256", "--bank", "64"
    )


def test_the_verdict_comes_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed_by(capsys, "diagnose", "python-256", "--bank", "64").startswith(
        "policy: min in the same bank would avoid 53% of"
    )
    out = printed_by(capsys, "diagnose", "deepseek-v2-lite", "--bank", "16", "--contract", "atomic")
    assert out.startswith("working set: Of 122,806 misses, 69,631 remain under the optimum (min)")


def test_the_cliff_is_shown_for_one_bank_only(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["python-256", "--bank", "6", "--contract", "atomic"]
    out = printed_by(capsys, "diagnose", *options, "--scope", "global")
    assert out.startswith("cliff: One bank of 36 slots for all layers holds less than the 48 of one token")
    assert "\ncliff " in out
    assert "slots / experts" not in out  # which holds for layers only
    out = printed_by(capsys, "diagnose", *options)
    assert "cliff" not in out
    assert "slots / experts" in out


def test_what_is_not_known_is_a_dash(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A bank of bytes that experts of two sizes share has no known optimum."""
    path = tmp_path / "unequal.parquet"
    calls = [(layer, [expert], 1) for _ in range(6) for expert in range(3) for layer in (0, 1)]
    write_store(trace_of(calls, 4).with_(expert_bytes={0: 10, 1: 30}), path)
    out = printed_by(capsys, "diagnose", str(path), "--bank", "50B", "--scope", "global", "--contract", "atomic")
    assert out.startswith("unknown: 6 of 36 misses are first uses")
    assert "gap to min" in out
    lines = [line.split() for line in out.splitlines()]
    assert ["capacity", "-"] in [line[:2] for line in lines]
    answer = document(capsys, "diagnose", str(path), "--bank", "50B", "--scope", "global", "--contract", "atomic")
    assert answer["diagnosis"]["gap"]["minimum"] is None
    assert answer["diagnosis"]["lookahead"] is None
