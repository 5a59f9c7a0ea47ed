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


@pytest.mark.parametrize("name", named_models())
def test_show_fits_80_columns(capsys: pytest.CaptureFixture[str], name: str) -> None:
    out = printed_by(capsys, "model", "show", name)
    assert max(map(len, out.splitlines())) <= 80
    assert "source: " in out


def test_show(capsys: pytest.CaptureFixture[str]) -> None:
    out = " ".join(printed_by(capsys, "model", "show", "qwen3-30b-a3b").split())
    for expected in (
        "MoE layers 48",
        "experts a layer 128",
        "bytes an expert, mean 2,856,960",
        "ffn_down_exps 884,736 to 1,290,240",
        "routed experts 16.35 GiB",
        "dense weights 0.93 GiB",
        "bytes a token of context 98,304",
        "context of 4,096 tokens 384 MiB",
        "context of 131,072 tokens 12.0 GiB",
        "experts of one token 1,046.2 MiB",
        "reads an install (split 4) 9 to 12",
        "24 128 3,059,712 9",
        "64 8.17 50.0%",
    ):
        assert expected in out


def test_show_marks_estimated_dense_weights(capsys: pytest.CaptureFixture[str]) -> None:
    assert "dense weights ~1.33 GiB" in " ".join(printed_by(capsys, "model", "show", "deepseek-v2-lite:q8_0").split())
    assert "dense weights ~7.00 GiB" in " ".join(printed_by(capsys, "model", "show", "kimi-k2.5:ud-tq1_0").split())


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            "qwen3-30b-a3b",
            "format GGUF activation silu biases in experts no gate and up in one tensor no expert groups none MoE",
        ),
        ("gpt-oss-20b", "activation swiglu-oai biases in experts yes"),
        ("deepseek-v3", "expert groups 8"),
        ("gemma-4-26b-a4b", "activation gelu biases in experts no gate and up in one tensor yes"),
        ("gemma-4-26b-a4b", "expert groups none a scale per expert yes"),
        ("nemotron-3-nano-30b-a3b", "activation relu-sqr, no gate"),
        ("deepseek-v4-flash", "activation silu, clamped"),
        ("llama-4-scout", "routing weights before experts yes"),
        ("glm-5.3-flash", "format safetensors activation not known biases in experts not known"),
        ("qwen3.5-397b-a17b:mlx-2bit", "format MLX"),
        ("kimi-k3:vq3r", "format warp"),
    ],
)
def test_show_what_engines_ask(capsys: pytest.CaptureFixture[str], spec: str, expected: str) -> None:
    assert expected in " ".join(printed_by(capsys, "model", "show", spec).split())


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show"], "Missing argument 'SPEC'"),
        (["show", "nothing"], "unknown model 'nothing'"),
        (["show", "kimi-k2:q9"], "unknown quantization of kimi-k2 'q9'; give its size, such as kimi-k2@577GB"),
        (["show", "no/such/file.gguf"], "no such file"),
        (["show", "kimi-k2", "--io-split", "0"], "0 is not in the range 1<=x<=8"),
        (["show", "kimi-k2", "--io-split", "x"], "'x' is not a valid integer"),
    ],
)
def test_bad_usage_is_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    assert message in refusal(capsys, "model", *arguments)


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
