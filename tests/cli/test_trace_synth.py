"""`sim trace synth`, and the other verbs on what it writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from flashmoe_sim.cli.main import main
from flashmoe_sim.trace import load_trace
from flashmoe_sim.trace.nulls import shuffled_null
from tests.support import document, refusal

QWEN = ["--model", "qwen3.5-35b-a3b", "--topk", "4"]


def test_a_published_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, out = tmp_path / "table.csv", tmp_path / "qwen.parquet"
    table.write_text("bank,tok_s,hit_pct\n16,46.9,58.8\n32,51.9,72.8\n64,53.2,81.8\n128,53.0,84.5\n256,55.2,84.5\n")
    written = document(capsys, "trace", "synth", "--curve", table, "--tokens", 120, *QWEN, "--out", out)
    fit = written["fit"]
    assert (written["calls"], written["refs"], written["tokens"]) == (40 * 120, 40 * 480, 120)
    assert (fit["banks"], fit["curve_tokens"]) == ([16, 32, 64, 128, 256], 120)
    assert fit["asked"] == pytest.approx([0.588, 0.728, 0.818, 0.845, 0.845])
    assert fit["made"] == pytest.approx(fit["asked"], abs=0.005)
    curve = {point["bank"]: point["hit_rate"] for point in document(capsys, "curve", out)["curve"]}
    assert [curve[slots] for slots in fit["banks"]] == fit["made"]
    rows = document(capsys, "sweep", out, "--bank", "16,64", "--contract", "atomic", "--model", QWEN[1])["rows"]
    assert [row["hit_rate"] for row in rows] == [fit["made"][0], fit["made"][2]]
    assert rows[0]["bytes_per_token"] > 0


def test_what_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "made.jsonl"
    shape = ["--layers", "3", "--experts", "64", "--topk", "4"]
    arguments = ["trace", "synth", "--curve", "8:0.4,16:55%", *shape, "--tokens", "200", "--prompt", "20"]
    assert main([*arguments, "--curve-tokens", "400", "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith(f"{out}: 660 calls, 2,640 references, ")
    lines = printed.err.splitlines()
    assert lines[0] == f"sim: {out}: the runtime's layout has no place for phase, n_experts"
    assert lines[1].startswith(
        f"sim: {out}: synthetic, not a recording: drawn by LRU depth to hit in banks as asked (as "
    )
    assert lines[2] == f"sim: {out}: the curve belongs to a run of 400 tokens; with 220, large banks hit less"
    assert len(lines) == 3
    assert "exists; give --force" in refusal(capsys, *arguments, "--out", str(out))
    stored = tmp_path / "made.parquet"
    assert main([*arguments, "--curve-tokens", "400", "--out", str(stored)]) == 0
    stderr = capsys.readouterr().err
    described = document(capsys, "trace", "inspect", stored)
    assert described["prompt_share"] == pytest.approx(20 / 220)
    assert all(note in stderr for note in described["notes"])
    assert np.array_equal(load_trace(stored).expert, load_trace(out).expert)


def test_seeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for way in (["--curve", "8:0.4", "--layers", "2", "--experts", "32", "--topk", "4"], ["--like", "python-256"]):
        files = []
        for number, seed in enumerate(([], ["--seed", "1"], ["--seed", "2"])):
            files.append(tmp_path / f"{way[0]}{number}.parquet")
            assert main(["trace", "synth", *way, "--tokens", "80", *seed, "--out", str(files[-1])]) == 0
        first, same, other = (path.read_bytes() for path in files)
        assert first == same != other


def test_like(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "like.parquet"
    fit = document(capsys, "trace", "synth", "--like", "gpt-oss-120b", "--tokens", 2000, "--out", out)["fit"]
    described = document(capsys, "trace", "inspect", out)
    recorded = document(capsys, "trace", "inspect", "gpt-oss-120b")
    assert described["tokens"] == 2000
    for name in ("top_decile_share", "normalised_entropy", "overlap"):
        assert fit["asked"][name] == pytest.approx(recorded[name])
        assert fit["made"][name] == pytest.approx(described[name])
        # popularity that moves from stretch to stretch is a little steeper over all of them
        assert described[name] == pytest.approx(recorded[name], abs=0.01 if name == "overlap" else 0.015)


def test_nulls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shuffled, uniform = tmp_path / "shuffled.parquet", tmp_path / "uniform.parquet"
    written = document(capsys, "trace", "synth", "--null", "shuffled", "--like", "python-256", "--out", shuffled)
    assert "fit" not in written
    assert written["notes"][-1] == "shuffled null trace: not a recording"
    assert load_trace(shuffled).equals(shuffled_null(load_trace("python-256")))
    document(capsys, "trace", "synth", "--null", "uniform", *QWEN, "--tokens", 300, "--out", uniform)
    (row,) = document(capsys, "sweep", uniform, "--bank", "64", "--contract", "atomic")["rows"]
    assert row["hit_rate"] == pytest.approx(64 / 256 - 26 / 1200, abs=0.015)  # some of 1,200 requests a layer are cold
