"""The real runtime beside the simulator; needs FLASHMOE_RUNTIME, the path of a patched llama-cli."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flashmoe_sim.io.errors import SimError
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.trace.load import load_trace
from native_bridge.check.anchors import choose_anchors
from native_bridge.check.folder import open_folders
from native_bridge.cli.main import main
from native_bridge.engines.base import RunRequest
from native_bridge.engines.flashmoe.engine import FlashMoeEngine
from native_bridge.engines.table import find_runtime
from native_bridge.fixture.sidecar import write_sidecar
from native_bridge.run import Loaded, run_once
from tests.native_bridge.conftest import MODEL, PROMPT
from tests.native_bridge.needs import RUNTIME
from tests.native_bridge.other_arch import write_qwen3next
from tests.support import document

pytestmark = RUNTIME


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
    assert all(run["tokens"] == run["tokens_wanted"] for run in runs.values() if run["verdict"] == "exact")
    # By counts; whether a machine can be fitted on them depends on the milliseconds of a busy one.
    others = [one for one in open_folders([tmp_path / "made"], model=None).given if one.name != "slot-bank24"]
    assert [one.name for one in choose_anchors(others)] == ["slot-bank12", "oracle-all-hit", "slot-bank64"]
    assert "all counts equal" in page.read_text()


@pytest.fixture(scope="module")
def qwen3next(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The small model as an architecture whose last layer has calls without tokens, and its sidecar."""
    folder = tmp_path_factory.mktemp("qwen3next")
    write_qwen3next(folder / "next.gguf")
    write_sidecar(folder / "next.gguf", folder / "sidecar")
    return ["--model", str(folder / "next.gguf"), "--sidecar", str(folder / "sidecar")]


@pytest.mark.parametrize("prefetch", [None, "temporal", "predict-prev", "predict-top1"])
def test_another_architecture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], qwen3next: list[str], prefetch: str | None
) -> None:
    run = ["bridge", "run", "--out", str(tmp_path), *qwen3next, "--tokens", "30", "--threads", "1"]
    run += ["--mode", "slot-bank,resident-slot-bank" + ("" if prefetch else ",stock,oracle-all-hit,oracle-prefetch")]
    prefetching = ["--prefetch", prefetch] if prefetch else []
    assert main([*run, *prefetching, "--bank", "16,64"]) == 0
    assert main([*run, *prefetching, "--bank", "29", "--ubatch", "3"]) == 0
    exact(tmp_path, capsys)
    trace = load_trace(tmp_path / "-".join(["slot-bank29-ub3", *prefetching[1:]]) / "trace.jsonl.gz")
    assert set(trace.layer[~trace.has_refs].tolist()) == {7}


def test_slots_that_are_found_in_a_callback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_FLASH_MOE_DISABLE_NATIVE_SLOT_MAP", "1")
    run = ["bridge", "run", "--out", str(tmp_path), "--tokens", "30", "--threads", "1", "--bank", "16"]
    assert main([*run, "--mode", "slot-bank,oracle-all-hit,oracle-prefetch"]) == 0
    exact(tmp_path, capsys)
    assert not load_trace(tmp_path / "slot-bank16" / "trace.jsonl.gz").has_refs.all()


def exact(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The runs of a folder by name, all of them exact."""
    capsys.readouterr()
    runs = {run["run"]: run for run in document(capsys, "bridge", "check", str(folder))["runs"]}
    assert {run["verdict"] for run in runs.values() if run["mode"] != "stock"} == {"exact"}
    return runs


def test_a_text_goes_on_to_its_last_token(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, sidecar: Path
) -> None:
    """However likely its end is; and a replay of a text that ended is compared up to there."""
    request = RunRequest("slot-bank", 24, PROMPT, n_predict=30, extra=("--logit-bias", "0+50"))
    loaded = Loaded(find_runtime(None), MODEL, sidecar)
    run_once(request, loaded, folder=tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(FlashMoeEngine, "go_on_flags", lambda self, model: ("--ignore-eos",))
        run_once(request, loaded, folder=tmp_path / "ended")
    with pytest.raises(SimError, match=r"the trace that it replays ends after \d+ routed calls, and the text went on"):
        run_once(
            replace(request, mode="oracle-prefetch"), loaded, folder=tmp_path / "outlives", replay=tmp_path / "ended"
        )
    runs = exact(tmp_path, capsys)
    assert {name: run["tokens"] for name, run in runs.items()} == {"whole": 30, "ended": 1, "outlives": None}
    assert "compared up to there" in runs["outlives"]["notes"][-1]


def test_a_bank_that_a_call_does_not_fit_into(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of 20 slots and of 24 with four tokens a call: the runs fail, and the check says in which call they must."""
    run = ["bridge", "run", "--out", str(tmp_path), "--mode", "slot-bank", "--ubatch", "4"]
    run += ["--tokens", "30", "--threads", "1"]
    assert main([*run, "--bank", "20,24"]) == 1
    assert main([*run, "--bank", "24", "--prefetch", "temporal"]) == 1
    assert main([*run, "--bank", "40"]) == 0
    capsys.readouterr()
    runs = {run["run"]: run for run in document(capsys, "bridge", "check", str(tmp_path))["runs"]}
    assert len(runs) == 4
    for name in ("slot-bank20-ub4", "slot-bank24-ub4", "slot-bank24-ub4-temporal"):
        assert runs[name]["verdict"] == "exact"
        assert "as predicted" in runs[name]["notes"][0]
        assert " experts by the trace of slot-bank" in runs[name]["notes"][0]


def test_calibrate(tmp_path: Path) -> None:
    out = tmp_path / "mine.toml"
    assert main(["bridge", "calibrate", "--out", str(out), "--repeat", "1", "--threads", "1"]) == 0
    machine = load_machine(str(out))
    assert machine.cpu.layer_us.value > 0
    assert sorted(path.name for path in (tmp_path / "mine-runs").iterdir()) == [
        "oracle-all-hit",
        "sidecar",
        "slot-bank12",
        "slot-bank64",
    ]
