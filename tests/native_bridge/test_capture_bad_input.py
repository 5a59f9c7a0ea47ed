"""`sim trace capture` with what cannot be captured: one line, exit 2, and nothing left behind."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from native_bridge.capture import llama_cpp
from native_bridge.fixture import bundled_model
from tests.geometry.conftest import gguf, key, tensor, text
from tests.support import refusal

DENSE = gguf([key("general.architecture", 8, text("llama"))], [tensor("output.weight", (32, 2), 0)], data_bytes=256)
MODEL = str(bundled_model())
CASES = {
    "no such file": (["--model", "none.gguf", "--prompt", "x"], "none.gguf: no such file"),
    "a text": (["--model", "note.txt", "--prompt", "x"], "note.txt: at byte 0: begins with b'Dear'", "a GGUF file?"),
    "dense": (["--model", "dense.gguf", "--prompt", "x"], "dense.gguf: not a mixture-of-experts model", "llama"),
    "a folder": (["--model", "folder", "--prompt", "x"], "folder: a folder without config.json; give a GGUF file"),
    "a folder on the GPU": (["--model", "hf", "--prompt", "x", "--gpu-layers", "3"], "--gpu-layers is for GGUF files"),
    "no prompt": (["--model", MODEL], "give the text to begin with: either --prompt or --prompt-file"),
    "two prompts": (["--model", MODEL, "--prompt", "x", "--prompt-file", "note.txt"], "either --prompt or"),
    "empty": (["--model", MODEL, "--prompt", " \n"], "the prompt is empty; give a text"),
    "no prompt file": (["--model", MODEL, "--prompt-file", "none.txt"], "none.txt: no such file; give a text file"),
    "a prompt folder": (["--model", MODEL, "--prompt-file", "folder"], "folder: cannot be read (Is a directory)"),
    "not UTF-8": (["--model", MODEL, "--prompt-file", "latin.txt"], "latin.txt: is not UTF-8 (byte 3)"),
    "parquet": (["--model", MODEL, "--prompt", "x", "--out", "t.parquet"], "t.parquet: the name tells no format"),
    "exists": (["--model", MODEL, "--prompt", "x", "--out", "old.jsonl"], "old.jsonl: exists; give --force"),
    "no folder": (["--model", MODEL, "--prompt", "x", "--out", "no/t.jsonl"], "no/t.jsonl: cannot be written"),
    "ubatch": (["--model", MODEL, "--prompt", "x", "--ubatch", "0"], "'--ubatch'"),
}


@pytest.mark.parametrize("case", CASES)
def test_one_line(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in {
        "note.txt": b"Dear diary",
        "dense.gguf": DENSE,
        "latin.txt": b"caf\xe9",
        "old.jsonl": b"",
    }.items():
        Path(name).write_bytes(content)
    Path("folder").mkdir()
    Path("hf").mkdir()
    Path("hf/config.json").write_text("{}")
    before = sorted(Path().rglob("*"))
    arguments, *fragments = CASES[case]
    line = refusal(capsys, "trace", "capture", *arguments)
    for fragment in fragments:
        assert fragment in line
    assert sorted(Path().rglob("*")) == before


@pytest.mark.parametrize(
    ("package", "model", "command"),
    [
        ("llama_cpp", MODEL, "CMAKE_ARGS=-DGGML_NATIVE=OFF pip install '.[capture]'"),
        ("torch", "hf", "pip install '.[capture-hf]'"),
    ],
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    package: str,
    model: str,
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("hf").mkdir()
    Path("hf/config.json").write_text("{}")
    monkeypatch.setitem(sys.modules, package, None)
    llama_cpp._library.cache_clear()
    line = refusal(capsys, "trace", "capture", "--model", model, "--prompt", "x", "--out", "t.jsonl")
    assert "is not installed" in line
    assert command in line
    assert not Path("t.jsonl").exists()
