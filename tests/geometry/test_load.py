"""`load_model`: a folder, a manifest, a GGUF file or a name."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from flashmoe_sim.geometry import LayerGeometry, ModelGeometry, load_model, named_model
from flashmoe_sim.io.errors import BadInput, Malformed, Missing, UnknownName, Unsupported, Unusable
from tests.geometry.conftest import document, entry, gguf, write
from tests.support import refused

FAMILIES = ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")


@pytest.fixture
def sidecar(tmp_path: Path) -> Path:
    return write(tmp_path / "side", document([entry(0, family, 4352) for family in FAMILIES]))


def test_a_sidecar_by_folder_or_file_whatever_its_name(sidecar: Path) -> None:
    renamed = sidecar.with_name("experts")
    sidecar.rename(renamed)
    assert load_model(renamed).routed_bytes == 8 * 13_056
    renamed.rename(sidecar)
    assert load_model(str(sidecar)) == load_model(sidecar.parent)


def test_a_gguf_file_by_content(tmp_path: Path, moe_keys: list[bytes], moe_tensors: list[bytes]) -> None:
    path = tmp_path / "weights.bin"
    path.write_bytes(gguf(moe_keys, moe_tensors, data_bytes=800))
    model = load_model(path)
    assert (model.name, model.routed_bytes) == ("Small", 768)


def test_a_gguf_file_and_its_sidecar_agree(tmp_path: Path, moe_keys: list[bytes], moe_tensors: list[bytes]) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(gguf(moe_keys, moe_tensors, data_bytes=800))
    manifest = write(tmp_path, document([entry(0, family, 64, experts=4) for family in FAMILIES], expert_count=4))
    assert load_model(path).layers == load_model(manifest).layers


def test_a_name_wins_over_a_folder_of_the_same_name(sidecar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = sidecar.parent.with_name("kimi-k2")
    sidecar.parent.rename(folder)
    monkeypatch.chdir(folder.parent)
    assert load_model("kimi-k2") == named_model("kimi-k2")
    assert load_model("./kimi-k2").name == load_model(Path("kimi-k2")).name == "tiny"


@pytest.mark.parametrize(
    ("spec", "message", "kind"),
    [
        ("nothing.gguf", "no such file", Missing),
        ("a/b", "no known model is named so", UnknownName),
        ("./a/b", "no such file", Missing),
        ("a/b.jsonl", "no such file", Missing),
        (Path("kimi"), "no such file", Missing),
        ("kimi", "did you mean 'kimi-k", UnknownName),
        ("a\0b", "unknown model", UnknownName),
        ("", "in this folder", Missing),
        ("/dev/null", "is not a regular file", Unusable),
        ("x" * 5000 + "/y", "cannot be read", Unusable),
    ],
)
def test_nothing_that_can_be_loaded(
    spec: str | Path, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[BadInput]
) -> None:
    monkeypatch.chdir(tmp_path)
    with refused(kind, match=message):
        load_model(spec)


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 64, b"GGU", b"\x1f\x8b", "grüße".encode("latin-1"), struct.pack("<1000Q", *[2**60] * 1000)]
)
def test_files_that_are_neither(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(Malformed):
        load_model(path)


@pytest.mark.parametrize(
    ("name", "content", "line", "kind"),
    [
        ("config.json", b"{}", "is an empty object", Malformed),
        ("config.json", b"null", "is JSON, but nothing is no object of a model; give the model's config.js", Malformed),
        ("config.json", b'{"num_experts": 8}', "names no model_type and no architectures", Malformed),
        (
            "adapter_config.json",
            b'{"peft_type": "LORA", "base_model_name_or_path": "Qwen/Qwen3-30B-A3B"}',
            "is of an adapter (LoRA), not of a model; give its base model, Qwen/Qwen3-30B",
            Unsupported,
        ),
        ("config.json", b'{"peft_type": "LORA"}', "is of an adapter (LoRA), not of a model; give its bas", Unsupported),
        ("model_index.json", b'{"_class_name": "FluxPipeline"}', "is of a diffusers pipeline", Unsupported),
        ("generation_config.json", b'{"do_sample": true}', "is settings of generation, not a model's con", Unsupported),
        ("model.safetensors.index.json", b'{"weight_map": {}}', "is the index of a model's weights", Unsupported),
        ("model.safetensors", b"\x10" + bytes(7) + b'{"__metadata__":{}}', "is a file of safetensors; gi", Unsupported),
        ("a.gguf", b"\x8a\x00random bytes", "is no GGUF file: it begins with b'\\x8a\\x00ra'", Malformed),
        ("a.gguf", b"version https://git-lfs.github.com/spec/v1", "is a pointer of Git LFS to a file", Malformed),
        ("a.gguf", b"<!DOCTYPE html><html>", "is a web page; download the file itself", Malformed),
    ],
)
def test_a_file_that_is_no_model_says_what_it_is(
    name: str, content: bytes, line: str, tmp_path: Path, kind: type[BadInput]
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with refused(kind, line, begins=f"{path}: "):
        load_model(path)
    if name in ("config.json", "adapter_config.json", "model_index.json"):
        with refused(kind, line, begins=f"{path}: "):
            load_model(tmp_path)


def test_a_folder_of_gguf_files_names_one(tmp_path: Path) -> None:
    for name in ("b.gguf", "a.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    with refused(Unsupported, "is a folder with a.gguf and other GGUF files; give the file, ", "a.gguf"):
        load_model(tmp_path)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="needs permissions that bind")
def test_a_file_that_may_not_be_read(sidecar: Path) -> None:
    sidecar.chmod(0)
    with pytest.raises(Unusable, match="cannot be read"):
        load_model(sidecar)


def test_layer_geometry_by_hand() -> None:
    """32 KiB can be cut into 2 chunks of 16 KiB, 128 KiB into 8, 4,352 bytes into none."""
    layer = LayerGeometry(4, {"ffn_gate_exps": 32 * 1024, "ffn_up_exps": 128 * 1024, "ffn_down_exps": 4352})
    assert layer.expert_bytes == 168_192
    assert [layer.read_ops(io_split=split) for split in (1, 2, 4, 8)] == [3, 5, 7, 11]
    model = ModelGeometry(name="m", layers={3: layer, 5: LayerGeometry(8, {"a": 10})}, top_k=2, source="here")
    assert model.routed_bytes == 4 * 168_192 + 8 * 10
    assert model.bank_bytes(3) == 3 * (168_192 + 10)
    assert model.token_cycle_bytes() == 2 * 168_202
    assert model.token_cycle_bytes(top_k=1) == 168_202
