"""`sim model`: what it prints, in a table and as JSON."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashmoe_sim.geometry import named_models
from native_bridge.fixture import bundled_model
from tests.support import document, printed_by, refusal

REPO = Path(__file__).parents[2]


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed_by(capsys, "model", "list")
    for name, model in named_models().items():
        line = next(line for line in out.splitlines() if line.split()[:1] == [name])
        assert model.default in line
        assert f"x {model.experts}" in line
    assert max(map(len, out.splitlines())) <= 80


def test_list_json(capsys: pytest.CaptureFixture[str]) -> None:
    rows = {row["name"]: row for row in document(capsys, "model", "list")["models"]}
    assert list(rows) == list(named_models())
    assert rows["gpt-oss-120b"]["routed_bytes"] == 36 * 128 * 13_219_200
    assert (rows["glm-5.1"]["estimated"], rows["gpt-oss-120b"]["estimated"]) == (True, False)


def test_show_what_engines_ask_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "model", "show", "qwen3.8-flash-next")
    assert (found["format"], found["width"]) == ("gguf", 640)
    assert found["graph"]["activation"] == "silu"
    assert found["graph"]["groups"] is None


def test_show_json(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "model", "show", "kimi-k2.5:ud-tq1_0", "--io-split", "8")
    assert found["identity"]["name"] == "kimi-k2.5:ud-tq1_0"
    assert (found["moe_layers"], found["top_k"]) == (60, 8)
    assert found["n_experts"] == {"min": 384, "mean": 384.0, "max": 384}
    assert found["routed_bytes"] == sum(layer["expert_bytes"] * layer["n_experts"] for layer in found["layers"])
    assert found["bank_bytes"]["384"] == found["routed_bytes"]
    assert found["read_ops_per_install"] == {"min": 24, "mean": 24.0, "max": 24}
    assert found["layers"][0]["layer"] == 1
    assert sum(found["layers"][0]["family_bytes"].values()) == found["layers"][0]["expert_bytes"]


def test_show_json_has_the_context(capsys: pytest.CaptureFixture[str]) -> None:
    context = document(capsys, "model", "show", "gpt-oss-20b")["context"]
    assert context["token_bytes"] == 24_576
    assert context["context_bytes"] == {str(tokens): 24_576 * (tokens + 768) for tokens in (4096, 32768, 131072)}
    assert document(capsys, "model", "show", "inkling-small")["context"] is None


def test_the_header_of_a_gguf_file_is_enough(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """`show`, `sweep` and `recommend` print the same with the first half of the file, and that it cannot run."""
    model = tmp_path / "tiny.gguf"
    whole = bundled_model().read_bytes()
    trace = str(REPO / "data/runs/prose-bank12/trace.jsonl.gz")
    asked = (
        ["model", "show", str(model)],
        ["sweep", trace, "--model", str(model), "--bank", "12"],
        ["recommend", "--model", str(model), "--machine", "rtx-3060", "--system", "cpu"],
    )
    printed = []
    for content in (whole, whole[: len(whole) // 2]):
        model.write_bytes(content)
        for arguments in asked:
            printed.append(printed_by(capsys, *arguments, quiet=False))
    note = "the weights are cut off: enough to simulate, not to run"
    *same, advice = printed[3:]
    assert same == [f"{printed[0]}note: {note}\n", printed[1]]
    *first, date = printed[2].splitlines(keepends=True)
    assert advice == f"{''.join(first)}Note   tiny-moe-64x8: {note}\n{date}"


def test_a_cut_header_says_how_much_to_get(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    model = tmp_path / "tiny.gguf"
    model.write_bytes(bundled_model().read_bytes()[:60_000])
    message = "the file ends at byte 60000; its header is cut: get the first 32 MiB (curl -L -r 0-33554431 -o tiny.gguf"
    assert message in refusal(capsys, "recommend", "--model", model, "--machine", "rtx-3060")
