"""`sim recommend --verify`: which runs are made, and what is said of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flashmoe_sim.tune.trials import MAY, Prospects
from native_bridge.cli.main import main
from native_bridge.tuning import launch, session
from tests.native_bridge.conftest import MODEL
from tests.native_bridge.tuning import stand_in, test_patched
from tests.support import refusal

MACHINE = "rtx-4090 + ryzen-7950x + 96GiB"
SIZE = MODEL.stat().st_size


@pytest.fixture(autouse=True)
def _same_everywhere(monkeypatch: pytest.MonkeyPatch, own_folder: None) -> None:
    """Eight cores, no other program, and short runs."""
    monkeypatch.setattr(session, "DECODED_S", 0.0)
    monkeypatch.setattr(launch, "_threads", lambda: [6, 8])
    monkeypatch.setattr("native_bridge.host.physical_cores", lambda: 8)
    monkeypatch.setattr(session._Others, "cores", lambda *_: 0.0)


def verify(folder: Path, *more: object, system: str = "cpu", **behaviour: Any) -> int:
    engine = folder / "llama-bench"
    if not engine.exists():
        stand_in.write(engine, "fake_bench", {"speed": 100.0, "model_bytes": SIZE} | behaviour)
    return verify_with(engine, *more, system=system)


def verify_with(engine: object, *more: object, system: str) -> int:
    asked = ["recommend", "--model", MODEL, "--machine", MACHINE, "--system", system, "--verify", "--engine", engine]
    return main([*map(str, [*asked, *more])])


def test_the_recommended_line_runs_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(tmp_path, "--runs", "kept") == 0
    out, err = capsys.readouterr()
    said = " ".join(out.split())
    first = json.loads(Path("kept/tune.jsonl").read_text().splitlines()[1])
    assert first["setting"].startswith("cpu threads=8 mmap=")
    assert f"{first['setting']}, the recommended setting, was 5% slower than cpu threads=6" in said
    assert "speeds were within their 90% interval" in said
    assert "The line of the fastest:" in said
    assert "--measured cpu=" in said
    assert "; kept in kept" in err
    assert said.index("Run") < said.index("predicted, 90%")
    assert max(map(len, out[out.index("predicted, 90%") :].partition("The line of")[0].splitlines())) <= 80
    runs = (tmp_path / "kept" / "tune.jsonl").read_text()
    assert verify(tmp_path, "--runs", "kept") == 0
    assert (tmp_path / "kept" / "tune.jsonl").read_text() == runs


def test_one_document(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    assert verify(tmp_path, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    found = document["verified"]
    assert found["recommended"].startswith("cpu threads=8")
    assert found["fastest"].startswith("cpu threads=6")
    assert found["lost"] == pytest.approx(1 - 1 / 1.05)
    assert "-t 6" in found["command"]
    first, *others = found["settings"]
    assert first["setting"] == found["recommended"]
    assert first["measured_tok_s"] == pytest.approx(100.0 * 10)
    assert first["tok_s_lo"] < first["tok_s"] < first["tok_s_hi"]
    assert first["within_interval"] == (first["tok_s_lo"] <= 1000 <= first["tok_s_hi"])
    assert all(one["measured"] for one in (first, *others))
    assert {one.partition("=")[0] for one in found["measured_options"]} == {"cpu"}
    assert not list((tmp_path / "temporary").iterdir())


def test_prompts_are_timed_if_they_were_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(tmp_path, "--json", "--objective", "prompt", "--prompt-tokens", "500") == 0
    found = json.loads(capsys.readouterr().out)["verified"]
    assert found["settings"][0]["measured_tok_s"] == pytest.approx(20 * 1000)
    assert found["measured_options"] == []


def test_a_line_that_fails_is_exit_code_1_after_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(tmp_path, breaks="crash") == 1
    out, err = capsys.readouterr()
    assert "the recommended setting, has no speed: its runs failed" in " ".join(out.split())
    assert "unknown architecture" in err.splitlines()[-1]


def test_the_patched_runtime(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engine = test_patched.write(tmp_path)
    assert verify_with(engine, "--json", "--minutes", "0.5", system="slot-bank") == 0
    found = json.loads(capsys.readouterr().out)["verified"]
    assert found["recommended"].startswith("slot-bank:slots=64")
    assert found["fastest"].startswith("slot-bank:slots=64:")


def test_what_cannot_be_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engine = stand_in.write(tmp_path / "llama-bench", "fake_bench", {"speed": 5.0})

    def said(*given: object) -> str:
        return refusal(capsys, "recommend", "--machine", MACHINE, *given)

    of = ("--model", MODEL, "--engine", engine, "--verify")
    advice = "give the program of its line with --engine"
    asked = [*map(str, ("recommend", "--machine", MACHINE, *of))]
    assert main([*asked, "--system", "slot-bank"]) == 2
    assert f"llama-bench does not run it; {advice}" in capsys.readouterr().err
    assert main([*asked, "--system", "cpu", "--draft", "2", "--accept", "0.5"]) == 2
    assert "llama-bench drafts nothing" in capsys.readouterr().err
    assert "/none: no such file" in said("--model", MODEL, "--verify", "--engine", tmp_path / "none")
    assert "--engine without --verify: nothing is run; add --verify" in said("--model", MODEL, "--engine", engine)
    assert "--verify runs a GGUF file; found --model qwen3-30b-a3b" in said("--model", "qwen3-30b-a3b", "--verify")
    other = said("--model", "qwen3-30b-a3b", "--gguf", MODEL, "--verify")
    assert "has 8 layers of 64 experts, top-8; --model qwen3-30b-a3b has 48 layers of 128" in other


@pytest.mark.parametrize("seed", range(3))
def test_what_may_be_faster_by_draws(seed: int) -> None:
    draws = np.random.default_rng(seed)
    root = draws.normal(size=(6, 6)) / 3
    found = Prospects(draws.normal(size=6), root @ root.T)
    logs = found.mean + draws.multivariate_normal(np.zeros(6), found.covariance, 200_000)
    share = np.mean(logs - logs[:, [2]] > -np.log1p(-0.03), axis=0)
    clear = np.abs(share - MAY) > 0.005
    assert (found.may_be_faster(2)[clear] == (share > MAY)[clear]).all()
    assert clear.sum() >= 5
