import json
from pathlib import Path

import numpy as np
import pytest

from flashmoe_sim.cli.main import main
from flashmoe_sim.trace import load_trace
from flashmoe_sim.trace.store import write_store
from tests.support import document, printed_by, refusal
from tests.trace.strategies import trace_of

LAYERS = 30


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Twenty tokens of thirty layers, two experts each."""
    rng = np.random.default_rng(0)
    lines = []
    for _ in range(20):
        pairs = [[layer, int(one)] for layer in range(LAYERS) for one in rng.choice(16, 2, replace=False)]
        lines.append(json.dumps(pairs))
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_inspect_prints_tables_that_fit(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = printed_by(capsys, "trace", "inspect", str(trace), "--bank", "4,8")
    assert max(map(len, out.splitlines())) <= 80
    for text in ("calls", "600", "in 20 steps of 30 layers", "union/slots p50", "0-2", "27-29", "overlap"):
        assert text in out
    assert "…" not in out
    assert main(["trace", "inspect", str(trace), "--all-layers"]) == 0
    rows = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert [str(layer) for layer in range(LAYERS)] == [row for row in rows if row.isdecimal()]


def test_the_catalogue_has_the_size_of_each_trace(capsys: pytest.CaptureFixture[str]) -> None:
    first, *_ = document(capsys, "trace", "catalog")["traces"]
    assert [first[key] for key in ("name", "tokens", "layers", "experts", "top_k")] == ["python-256", 1026, 6, 256, 8]


def test_inspect_says_what_a_trace_can_be_asked(capsys: pytest.CaptureFixture[str]) -> None:
    """Weights and requests of the recorded requests, but not the slots that the runtime's own trace has."""
    requests, run = (document(capsys, "trace", "inspect", name) for name in ("requests-64", "python-256"))
    assert requests["seen"] == ["weight", "rank", "request", "position", "phase", "tokens"]
    assert requests["allows"] == ["prompt and answer apart", "requests apart", "rules of gate weights"]
    assert run["allows"] == ["prompt and answer apart", "check of slots"]


def test_inspect_json(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "trace", "inspect", str(trace), "--bank", "4")
    assert (found["calls"], found["refs"], found["tokens"], found["format"]) == (
        600,
        1200,
        20,
        "token-pairs",
    )
    assert found["banks"][0]["union_over_slots_p50"] == 0.5
    assert len(found["layers"]) == LAYERS
    assert found["layers"][3]["union"] == {"mean": 2.0, "p50": 2, "p99": 2, "max": 2}


def test_lint_exits_1_only_when_something_is_wrong(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trace", "lint", str(trace)]) == 0
    printed = capsys.readouterr()
    assert "smallest-bank" in printed.out
    assert max(map(len, printed.out.splitlines())) <= 80
    bad = tmp_path / "bad.parquet"
    write_store(trace_of((0, [1, 1])), bad)
    assert main(["trace", "lint", str(bad)]) == 1
    assert capsys.readouterr().err == f"sim: {bad}: 1 error found\n"
    findings = document(capsys, "trace", "lint", str(bad), code=1)["findings"]
    assert (findings[0]["severity"], findings[0]["code"], findings[0]["call"]) == ("error", "duplicate-expert", 0)


def test_reader_notes_go_to_stderr(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with trace.open("a") as stream:
        stream.write("[[0, 1")
    assert main(["trace", "inspect", str(trace), "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err == f"sim: {trace}: the last line (21) is torn and was dropped\n"
    json.loads(printed.out)


def test_lenient(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace.write_text("[[0, 99999]]\n" + trace.read_text())
    out = str(tmp_path / "o.parquet")
    assert "line 1: pair 0: expert is 99999" in refusal(capsys, "trace", "convert", str(trace), out)
    assert not Path(out).exists()
    assert main(["trace", "convert", str(trace), out, "--lenient"]) == 0
    assert "skipped 1 malformed line" in capsys.readouterr().err


def test_convert_and_overwrite(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "a.parquet"
    assert main(["trace", "convert", str(trace), str(out)]) == 0
    assert capsys.readouterr().out.startswith(f"{out}: 600 calls, 1,200 references, ")
    assert load_trace(out).equals(load_trace(trace))
    assert "exists; give --force" in refusal(capsys, "trace", "convert", str(trace), str(out))
    assert main(["trace", "convert", str(trace), str(out), "--to", "jsonl", "--force", "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["not_kept"] == ["phase"]
    assert "no place for phase" in printed.err
    assert out.read_bytes().startswith(b'{"seq":0,"layer":0,"n_expert_used":2,"n_tokens":1,"experts":[')


def test_cut(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.parquet"
    arguments = ["trace", "cut", str(trace), str(out), "--topk", "1", "--layers", "0-11,20", "--steps", "5:15"]
    assert main(arguments) == 0
    part, whole = load_trace(out), load_trace(trace)
    assert (part.calls, part.refs, part.top_k, part.tokens) == (130, 130, 1, 10)
    assert part.layers == (*range(12), 20)
    assert part.name == f"{whole.name}, layers 0-11,20, steps 5:15, top-1"
    np.testing.assert_array_equal(part.expert[:12], whole.expert[5 * 2 * LAYERS :][:24:2])


def test_lint_against_a_model(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "lint", str(trace), "--model", "qwen3-30b-a3b", "--json"]) == 0
    codes = {finding["code"] for finding in json.loads(capsys.readouterr().out)["findings"]}
    assert "silent-layer" in codes
    assert "out-of-range" not in codes
