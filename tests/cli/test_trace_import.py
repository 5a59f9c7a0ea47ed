"""`sim trace import`, and recordings given to other commands."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from flashmoe_sim import api
from flashmoe_sim.cli.main import main
from flashmoe_sim.trace import load_trace
from flashmoe_sim.trace.routing import PHASE_DECODE, PHASE_PROMPT
from tests.support import document, refusal
from tests.trace import recordings
from tests.trace.recordings import calls, expected, made

pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, content in recordings.files().items():
        Path(name).write_bytes(content)
    return tmp_path


ONE = made(1, prompt=24, generated=17, layers=4, experts=16, k=2)
OTHER = made(2, prompt=40, generated=17, layers=4, experts=16, k=2)


def test_an_array_becomes_a_trace_with_its_notes(capsys: pytest.CaptureFixture[str]) -> None:
    given = "trace import routing.npy --prompt-tokens 24 --moe-layers 3-6 --prefill-chunk 10 --out a.parquet"
    assert main(given.split()) == 0
    printed = capsys.readouterr()
    trace = load_trace("a.parquet")
    assert calls(trace) == expected([ONE], chunk=10, layers=[3, 4, 5, 6])
    assert printed.out.startswith("a.parquet: 76 calls, 320 references, ")
    assert printed.err == f"sim: a.parquet: {trace.notes[0]}\n"
    assert "chunks of 10 tokens" in trace.notes[0]


def test_responses_are_swept_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "vllm.jsonl", "--bank", "16", "--policy", "lru", "--json"]) == 0
    printed = capsys.readouterr()
    (row,) = json.loads(printed.out)["rows"]
    assert row["tokens"] == 96
    assert printed.err.count("prompts are assumed to be read in chunks of 512 tokens") == 1


def test_a_model_says_what_sglang_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a model top-k is enough; a model of another size is refused."""
    assert main(["sweep", "sglang.jsonl", "--bank", "16"]) == 2
    assert "SGLang sends neither layers nor top-k (320 ids of 40 tokens); give --model" in capsys.readouterr().err
    written = document(capsys, "trace", "import", "sglang.jsonl", "--top-k", "2", "--out", "s.parquet")
    assert (written["calls"], len(written["notes"])) == (136, 4)
    assert (
        "the responses do not say how many layers there are: 4 follow from their tokens; --model checks it"
        in (written["notes"])
    )
    assert calls(load_trace("s.parquet")) == expected([ONE, OTHER])
    assert main(["sweep", "sglang.jsonl", "--bank", "16", "--model", "qwen3-30b-a3b"]) == 2
    assert "1 layers, but the model routes in 48: 0-47; check --model" in capsys.readouterr().err


def test_the_python_functions_know_the_model_too(tmp_path: Path) -> None:
    one = made(3, layers=48, experts=128, k=8)
    path = tmp_path / "responses.jsonl"
    path.write_bytes(recordings.lines([recordings.sglang(one)]))
    loaded = api.load_trace(path, model="qwen3-30b-a3b")
    assert calls(loaded.trace) == expected([one])
    assert loaded.trace.n_experts_known


def test_a_table_by_its_columns(capsys: pytest.CaptureFixture[str]) -> None:
    given = "trace import log.csv --columns layer=blk,expert=e*,position=pos --prompt-tokens 24 --out log.jsonl"
    assert main(given.split()) == 0
    assert calls(load_trace("log.jsonl"))[0][4] == expected([ONE])[0][4]
    assert "not kept" not in capsys.readouterr().out


def test_what_is_said_of_passes_and_of_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    """A table of steps has the phase that is told; what is said of tokens is refused there, not ignored."""
    rows = [f"{step},{layer},{(step + layer) % 8}" for step in range(4) for layer in range(2)]
    Path("steps.csv").write_text("\n".join(["s,l,e", *rows]))
    given = ["trace", "import", "steps.csv", "--columns", "layer=l,expert=e,step=s", "--out", "s.parquet", "--force"]
    for phase, value in (("prompt", PHASE_PROMPT), ("decode", PHASE_DECODE)):
        assert main([*given, "--phase", phase]) == 0
        assert set(load_trace("s.parquet").phase.tolist()) == {value}
    capsys.readouterr()
    for option in ("--prompt-tokens", "--prefill-chunk", "--start"):
        assert f"{option} is for tables with position=" in refusal(capsys, *given, option, "2")
    Path("phases.csv").write_text("s,l,e,p\n0,0,1,decode\n")
    words = "trace import phases.csv --columns layer=l,expert=e,step=s,phase=p --phase prompt --out p.parquet"
    assert "has a column of phases" in refusal(capsys, *words.split())


def test_ids_that_begin_at_1_are_asked_about(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"{step},{layer},{1 + (step + layer) % 8}" for step in range(40) for layer in range(3)]
    Path("one.csv").write_text("\n".join(["s,l,e", *rows]))
    given = ["trace", "import", "one.csv", "--columns", "layer=l,expert=e,step=s", "--out", "one.parquet", "--force"]
    assert main(given) == 0
    assert "no layer asks for expert 0: do your ids begin at 1?" in capsys.readouterr().err
    assert main([*given, "--first-id", "1"]) == 0
    assert "begin at 1" not in capsys.readouterr().err
    assert (load_trace("one.parquet").expert.min(), load_trace("one.parquet").expert.max()) == (0, 7)


def test_the_converter_of_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "guides" / "traces.md").read_text()
    code, command = re.findall(r"```python\n(.*?)```\n\n```sh\nsim (.*?)```", page, re.DOTALL)[0]
    exec(code.replace("data/made-up/", ""), {})
    assert main(command.replace("\\\n", " ").split()) == 0
    assert calls(load_trace("glm52.parquet")) == expected([ONE, OTHER], layers=[3, 4, 5, 6])
