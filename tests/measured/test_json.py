"""Responses of servers, results of their benchmarks, records of llmfit, and folders of recorded runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flashmoe_sim import api
from flashmoe_sim.io.errors import BadInput, Malformed, Unusable
from flashmoe_sim.measured import missing, read_measured, read_with_notes
from tests.support import refused

FILES = Path(__file__).parent / "files"
DATA = Path(__file__).parents[2] / "data"


def changed(name: str, folder: Path, **values: Any) -> Path:
    document = json.loads((FILES / name).read_text().partition("\n{")[0]) | values
    (folder / name).write_text(json.dumps(document))
    return folder / name


def test_a_response_of_llama_server() -> None:
    """463 tokens of prompt after 100 that were cached."""
    prompt, decode = read_measured(FILES / "server-response.json")
    assert (prompt.prompt, prompt.tokens, prompt.depth, prompt.tok_s) == (True, 463, 100, 200.0)
    assert (decode.prompt, decode.tokens, decode.depth, decode.tok_s) == (False, 200, 563, 25.0)
    assert (decode.engine, decode.quant) == ("llama.cpp", "Q4_K_M")
    assert "does not say where the experts were" in missing(decode)


def test_a_response_with_drafts(tmp_path: Path) -> None:
    timings = {"predicted_n": 100, "predicted_per_second": 79.8, "draft_n": 200, "draft_n_accepted": 150}
    (found,) = read_measured(changed("server-response.json", tmp_path, timings=timings))
    assert found.unplaced == "was measured with drafts (0.75 accepted)"


def test_a_streamed_response(tmp_path: Path) -> None:
    """The last event has the timings; the stream ends with a word."""
    last = (FILES / "server-response.json").read_text()
    (tmp_path / "s.txt").write_text(f'data: {{"choices": []}}\n\ndata: {last}\ndata: [DONE]\n')
    assert [one.tok_s for one in read_measured(tmp_path / "s.txt")] == [200.0, 25.0]


def test_a_response_of_ollama() -> None:
    prompt, decode = read_measured(FILES / "ollama-api.json")
    assert (prompt.tokens, prompt.tok_s) == (226, 200.0)
    assert (decode.tokens, decode.tok_s, decode.depth) == (237, 30.0, 226)
    assert (decode.engine, decode.model) == ("ollama", "gpt-oss:120b")


@pytest.mark.parametrize("duration", [0, -5])
def test_a_duration_that_cannot_be(duration: int, tmp_path: Path) -> None:
    found = read_with_notes(changed("ollama-api.json", tmp_path, eval_duration=duration))
    assert [one.prompt for one in found.measured] == [True]
    assert "decode speed of 0.0 tok/s; expected more than 0" in found.left_out[0]


def test_vllm_one_request_at_a_time() -> None:
    (found,) = read_measured(FILES / "vllm.json")
    assert (found.engine, found.tok_s, found.sd) == ("vllm", 80.0, pytest.approx(0.02))
    assert (found.tokens, found.depth, found.prompt) == (128, 1024, False)


@pytest.mark.parametrize(
    ("at_once", "requests"), [(None, "up to any number of requests at once"), (8, "8 requests at once")]
)
def test_vllm_with_several_requests_at_once(at_once: int | None, requests: str, tmp_path: Path) -> None:
    with pytest.raises(Malformed, match=f"{requests}; measure one at a time: --max-concurrency 1"):
        read_measured(changed("vllm.json", tmp_path, max_concurrency=at_once))


def test_a_single_request_is_alone(tmp_path: Path) -> None:
    path = changed("vllm.json", tmp_path, max_concurrency=None, completed=1, total_output_tokens=128)
    assert [(one.tok_s, one.tokens, one.sd) for one in read_measured(path)] == [(80.0, 128, None)]


def test_sglang() -> None:
    """Two results, of which one had 32 requests at once; Python writes a rate without limit as Infinity."""
    found = read_with_notes(FILES / "sglang.jsonl")
    assert [(one.engine, one.tok_s, one.depth) for one in found.measured] == [("sglang", 50.0, 2048)]
    assert found.left_out[0].endswith("32 requests at once; measure one at a time: --max-concurrency 1")


def test_llmfit() -> None:
    """On one memory there is one place for the experts; another engine is no system."""
    glm, gpt_oss, qwen = read_measured(FILES / "llmfit-m5-max.json")
    assert (gpt_oss.tok_s, gpt_oss.tokens, gpt_oss.system, gpt_oss.engine) == (101.39, 249, "all-gpu", "ollama")
    assert (glm.tok_s, glm.model) == (84.63, "glm-4.7-flash:latest")
    assert (qwen.engine, qwen.unplaced) == ("Ollama's MLX", "ran Ollama's MLX, which is no system")


def test_llmfit_that_counts_the_prompt_too(tmp_path: Path) -> None:
    """300 tokens in 4,527 ms are 66.27 a second: the whole request."""
    result = {
        "model": "m.gguf",
        "provider": "llamacpp",
        "avgTps": 66.27,
        "avgTotalMs": 4527.07,
        "avgOutputTokens": 300.0,
    }
    (found,) = read_measured(changed("llmfit-m5-max.json", tmp_path, results=[result]))
    assert found.unplaced == "times the whole request, with its prompt"


def test_the_folder_of_a_run() -> None:
    (decode, *_) = [one for one in read_measured(DATA / "runs-gpu" / "bank8") if not one.prompt]
    assert (decode.system, decode.tokens, decode.tok_s) == ("slot-bank:slots=8", 100, pytest.approx(591.91, rel=1e-4))
    (prompt, decode) = read_measured(DATA / "runs-timed" / "warm-bank24" / "run.json")
    assert (prompt.tok_s, decode.tok_s, decode.system) == (15.0, 15.0, "slot-bank:slots=24")


def test_a_run_whose_model_has_the_dense_weights_that_are_given() -> None:
    """Its manifest records none; --dense holds for the measured runs of the model as for the question."""
    asked: dict[str, Any] = {"model": DATA / "runs-timed" / "manifest.json", "systems": "slot-bank:slots=48"}
    run, of = DATA / "runs-timed" / "warm-bank48", {"machine": "vm-2core", "dense": "100MiB"}
    (alone, taught) = (
        api.compare(run / "trace.jsonl.gz", **asked, **of, **measured)["tok_s"][0]
        for measured in ({}, {"measured": DATA / "runs-timed" / "warm-bank24"})
    )
    assert taught != alone
    assert taught == pytest.approx(19.7, rel=0.05)  # what ran


@pytest.mark.parametrize(
    ("run", "unplaced"),
    [
        ("runs-timed/warm-allhit", "ran in the mode oracle-all-hit, which no system has"),
        ("runs-gpu/async-bank8", "changes the model or the runtime, as run.json says"),
        ("runs-timed/warm-stock", "does not say how many layers were on the GPU"),
    ],
)
def test_runs_that_no_system_is(run: str, unplaced: str) -> None:
    assert {(one.system, one.unplaced) for one in read_measured(DATA / run)} == {("", unplaced)}


@pytest.mark.parametrize(
    ("record", "log", "line", "kind"),
    [
        ({"rc": 1, "mode": "stock"}, "[ Prompt: 1.0 t/s | Generation: 2.0 t/s ]", "has exit status 1; give ", Unusable),
        ({"rc": 0}, "", "is empty", Malformed),
        ({"rc": 0}, "x", "has no `mode`; give the folder", Malformed),
        ({"rc": 0, "mode": "stock"}, "nothing", "log.txt: has no timings; give a run that finished", Unusable),
        ([], "x", "is not a JSON object", Malformed),
    ],
)
def test_folders_of_runs_that_failed(record: Any, log: str, line: str, tmp_path: Path, kind: type[BadInput]) -> None:
    (tmp_path / "run.json").write_text(json.dumps(record))
    (tmp_path / "log.txt").write_text(log)
    with refused(kind, line):
        read_measured(tmp_path)
