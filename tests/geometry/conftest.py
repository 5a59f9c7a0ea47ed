"""Small manifests and GGUF files to read and to damage."""

from __future__ import annotations

import copy
import json
import struct
from pathlib import Path
from typing import Any

import pytest


def entry(layer: int, family: str, per_expert: int, *, experts: int = 8, **changes: Any) -> dict[str, Any]:
    """One entry as the patched runtime's extractor writes it, with the keys that are read and a few that are not."""
    return {
        "layer": layer,
        "tensor_family": family,
        "tensor_name": f"blk.{layer}.{family}.weight",
        "quant_type": "Q8_0",
        "exact_byte_length": per_expert * experts,
        "source_shard": "tiny.gguf",
        "shape": [128, 32, experts],
        "bytes_per_expert": per_expert,
        "repacked_file": f"layer_{layer:03}.bin",
        "repacked_offset": 0,
        **changes,
    }


def document(entries: list[dict[str, Any]], **model: Any) -> dict[str, Any]:
    """A whole manifest around some entries."""
    return {
        "schema_version": 1,
        "source": {"model_files": ["tiny.gguf"]},
        "model": {"arch": "qwen35moe", "expert_count": 8, "expert_used_count": 2, **model},
        "entries": copy.deepcopy(entries),
    }


def write(folder: Path, content: Any) -> Path:
    """Write a manifest (an object, or raw bytes) into a folder of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "manifest.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def text(value: str) -> bytes:
    """A GGUF string: its length and its bytes."""
    return struct.pack("<Q", len(value.encode())) + value.encode()


def key(name: str, kind: int, value: bytes) -> bytes:
    """A GGUF key with a value of a numbered kind."""
    return text(name) + struct.pack("<I", kind) + value


def tensor(name: str, ne: tuple[int, ...], type_number: int, offset: int = 0) -> bytes:
    """An entry of a GGUF file's list of tensors."""
    return text(name) + struct.pack(f"<I{len(ne)}QIQ", len(ne), *ne, type_number, offset)


def gguf(keys: list[bytes], tensors: list[bytes], *, version: int = 3, data_bytes: int = 0) -> bytes:
    """A GGUF file with zeros for weights."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys)) + b"".join(keys) + b"".join(tensors)
    return head + bytes(-len(head) % 32) + bytes(data_bytes)


@pytest.fixture
def moe_keys() -> list[bytes]:
    """The keys of a small model: 4 experts, 2 used."""
    return [
        key("general.architecture", 8, text("qwen3moe")),
        key("general.name", 8, text("Small")),
        key("qwen3moe.expert_count", 4, struct.pack("<I", 4)),
        key("qwen3moe.expert_used_count", 4, struct.pack("<I", 2)),
    ]


@pytest.fixture
def moe_tensors() -> list[bytes]:
    """One layer in F32: 3 x 8 x 2 x 4 x 4 bytes of experts, 32 of a router."""
    return [
        tensor("blk.0.ffn_gate_exps.weight", (8, 2, 4), 0, 0),
        tensor("blk.0.ffn_up_exps.weight", (8, 2, 4), 0, 256),
        tensor("blk.0.ffn_down_exps.weight", (2, 8, 4), 0, 512),
        tensor("blk.0.ffn_gate_inp.weight", (8,), 0, 768),
    ]
