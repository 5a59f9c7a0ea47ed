"""Models: GGUF headers, whole and split, sidecar manifests, and words."""

from __future__ import annotations

import json
import struct
from contextlib import chdir
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from flashmoe_sim.geometry.gguf import read_gguf
from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.geometry.manifest import read_manifest
from flashmoe_sim.geometry.model import ModelGeometry
from tests.fuzz.target import Document, Skip, Target
from tests.geometry.conftest import document, entry, gguf, key, tensor, text

FAMILIES = ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")
CUT = b"\n-- 8< --\n"  # between the two files of a split model
SPLIT = ("m-00001-of-00002.gguf", "m-00002-of-00002.gguf")


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def keys_of(arch: str, *, experts: int, used: int) -> list[bytes]:
    return [
        key("general.architecture", 8, text(arch)),
        key("general.name", 8, text("Small")),
        key(f"{arch}.expert_count", 4, u32(experts)),
        key(f"{arch}.expert_used_count", 4, u32(used)),
        key(f"{arch}.block_count", 4, u32(2)),
        key(f"{arch}.embedding_length", 4, u32(8)),
        key(f"{arch}.attention.head_count", 9, u32(4) + struct.pack("<Q", 2) + u32(4) + u32(2)),
        key(f"{arch}.attention.head_count_kv", 4, u32(1)),
        key("tokenizer.ggml.tokens", 9, u32(8) + struct.pack("<Q", 2) + text("a") + text("b")),
    ]


def tensors_of(layers: list[int], experts: int) -> tuple[list[bytes], int]:
    """F32 experts of 8 x 2 in three families a layer, and their bytes."""
    found, at = [], 0
    for layer in layers:
        for family in FAMILIES:
            ne = (2, 8, experts) if family == "ffn_down_exps" else (8, 2, experts)
            found.append(tensor(f"blk.{layer}.{family}.weight", ne, 0, at))
            at += 4 * 16 * experts
    return found, at


def whole(arch: str = "qwen3moe", layers: int = 2, experts: int = 4, used: int = 2) -> bytes:
    tensors, size = tensors_of(list(range(layers)), experts)
    return gguf(keys_of(arch, experts=experts, used=used), tensors, data_bytes=size)


def split() -> bytes:
    parts = []
    for number in range(2):
        tensors, size = tensors_of([number], 4)
        split_keys = [
            key("split.no", 2, struct.pack("<H", number)),
            key("split.count", 2, struct.pack("<H", 2)),
            key("split.tensors.count", 5, struct.pack("<i", 6)),
        ]
        keys = (keys_of("gpt-oss", experts=4, used=2) if not number else []) + split_keys
        parts.append(gguf(keys, tensors, data_bytes=size))
    return CUT.join(parts)


def of_gguf(data: bytes, folder: Path) -> ModelGeometry:
    path = folder / "m.gguf"
    path.write_bytes(data)
    return read_gguf(path)


def of_split(data: bytes, folder: Path) -> ModelGeometry:
    if data.count(CUT) != 1:
        raise Skip
    for name, part in zip(SPLIT, data.split(CUT), strict=True):
        (folder / name).write_bytes(part)
    first = read_gguf(folder / SPLIT[0])
    assert first.layers == read_gguf(folder / SPLIT[1]).layers, "the files of a model differ in what they say of it"
    return first


def of_manifest(data: bytes, folder: Path) -> ModelGeometry:
    (folder / "manifest.json").write_bytes(data)
    return read_manifest(folder)


def of_words(data: bytes, folder: Path) -> ModelGeometry:
    words = data.decode("utf-8", "surrogateescape")
    if "/" in words or words in ("", ".", ".."):
        raise Skip
    with chdir(folder):
        return load_model(words)


def fits(data: bytes, model: ModelGeometry, folder: Path) -> None:
    """The experts of a GGUF file are no larger than the files that hold them."""
    assert model.routed_bytes <= len(data), "experts larger than the file"
    consistent(data, model, folder)


def consistent(_: bytes, model: ModelGeometry, __: Path) -> None:
    assert model.layers, "no layers"
    for layer in model.layers.values():
        assert layer.n_experts > 0, "a layer without experts"
        assert all(size > 0 for size in layer.family_bytes.values()), "an expert without bytes"
        assert layer.expert_bytes == sum(layer.family_bytes.values()), "other bytes"
    assert 0 <= model.top_k <= max(layer.n_experts for layer in model.layers.values()), "more experts than there are"


def sized(model: ModelGeometry) -> dict[int, tuple[int, int]]:
    return {number: (layer.n_experts, layer.expert_bytes) for number, layer in model.layers.items()}


@st.composite
def gguf_files(draw: st.DrawFn) -> Document:
    layers, experts = draw(st.integers(1, 3)), draw(st.integers(2, 16))
    used = draw(st.integers(1, experts))
    arch = draw(st.sampled_from(["qwen3moe", "gpt-oss", "llama4", "deepseek2", "qwen3next", "unheard-of"]))
    data = whole(arch, layers, experts, used)
    return data, (dict.fromkeys(range(layers), (experts, 3 * 64)), used)


@st.composite
def manifests(draw: st.DrawFn) -> Document:
    numbers = draw(st.lists(st.integers(0, 99), min_size=1, max_size=4, unique=True))
    experts, per_expert = draw(st.integers(2, 300)), draw(st.integers(1, 1 << 30))
    entries = [entry(number, family, per_expert, experts=experts) for number in numbers for family in FAMILIES]
    used = draw(st.integers(1, experts))
    manifest = document(draw(st.permutations(entries)), expert_count=experts, expert_used_count=used)
    return json.dumps(manifest).encode(), (dict.fromkeys(numbers, (experts, 3 * per_expert)), used)


def as_expected(found: ModelGeometry, expected: Any) -> bool:
    return (sized(found), found.top_k) == expected


MANIFEST = json.dumps(document([entry(0, family, 100) for family in FAMILIES] + [entry(1, "ffn_gate_up_exps", 50)]))
HUGE = (b"\xff" * 8, b"\0" * 8, struct.pack("<Q", 1 << 40), struct.pack("<Q", 1 << 63), u32(8), u32(9))
TARGETS = (
    Target(
        "model-gguf",
        of_gguf,
        lambda: [whole(), whole("gpt-oss", 1, 2, 1), whole("unheard-of")],
        (*HUGE, b"blk.0.ffn_up_exps.weight", b"general.alignment", b"qwen3moe.expert_used_count", b"GGUF"),
        "m.gguf",
        fits,
        gguf_files,
        as_expected,
    ),
    Target("model-gguf-split", of_split, lambda: [split()], (*HUGE, b"split.no", b"split.count", CUT), "m-0000", fits),
    Target(
        "model-manifest",
        of_manifest,
        lambda: [MANIFEST.encode()],
        (b'"repacked_file":', b'"../x"', b'"C:x"', b"1e400", b"9223372036854775808", b'"shape":', b"-1", b"[[[["),
        "manifest.json",
        consistent,
        manifests,
        as_expected,
    ),
    Target(
        "model-words",
        of_words,
        lambda: [b"qwen3-30b-a3b", b"gpt-oss-120b", b"qwen3-30b-a3b:q4_k_m"],
        (b":", b"=", b",", b"Q4_K", b"gpt-oss-20b"),
        holds=consistent,
    ),
)
