"""The real runtime beside the simulator; needs FLASHMOE_RUNTIME, the path of a patched llama-cli."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from flashmoe_sim.machines import load_machine
from native_bridge.cli.main import main

pytestmark = [
    pytest.mark.runtime,
    pytest.mark.skipif("FLASHMOE_RUNTIME" not in os.environ, reason="FLASHMOE_RUNTIME names no patched llama-cli"),
]


def test_every_mode(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "check.html"
    assert (
        main(["bridge", "check", "--threads", "1", "--runs", str(tmp_path / "made"), "--out", str(page), "--json"]) == 0
    )
    runs = {run["run"]: run for run in json.loads(capsys.readouterr().out)["runs"]}
    assert [name for name, run in runs.items() if run["verdict"] != "exact"] == ["stock", "resident-bank"]
    assert runs["stock"]["verdict"] == runs["resident-bank"]["verdict"] == "text"
    assert sum(run["slots"] for run in runs.values()) == 6 * runs["slot-bank12"]["slots"] > 50_000
    assert runs["slot-bank12"]["aliased_refs"] > 0
    assert runs["slot-bank24"]["anchors"] == ["slot-bank12", "oracle-all-hit", "slot-bank64"]
    assert "all counts equal" in page.read_text()


def test_a_bank_that_a_call_does_not_fit_into(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of 20 slots and of 24 with four tokens a call: the runs fail, and the check says in which call they must."""
    run = ["bridge", "run", "--out", str(tmp_path), "--mode", "slot-bank", "--ubatch", "4"]
    run += ["--tokens", "30", "--threads", "1"]
    assert main([*run, "--bank", "20,24"]) == 1
    assert main([*run, "--bank", "24", "--prefetch", "temporal"]) == 1
    assert main([*run, "--bank", "40"]) == 0
    capsys.readouterr()
    assert main(["bridge", "check", str(tmp_path), "--json"]) == 0
    runs = {run["run"]: run for run in json.loads(capsys.readouterr().out)["runs"]}
    assert len(runs) == 4
    for name in ("slot-bank20-ub4", "slot-bank24-ub4", "slot-bank24-ub4-temporal"):
        assert runs[name]["verdict"] == "exact"
        assert "as predicted" in runs[name]["notes"][0]
        assert " experts by the trace of slot-bank" in runs[name]["notes"][0]


def test_calibrate(tmp_path: Path) -> None:
    out = tmp_path / "mine.toml"
    assert main(["bridge", "calibrate", "--out", str(out), "--repeat", "1", "--threads", "1"]) == 0
    machine = load_machine(str(out))
    assert machine.cpu is not None
    assert machine.cpu.layer_us.value > 0
    assert sorted(path.name for path in (tmp_path / "mine-runs").iterdir()) == [
        "oracle-all-hit",
        "sidecar",
        "slot-bank12",
        "slot-bank64",
    ]
