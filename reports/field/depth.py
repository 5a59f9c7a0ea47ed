"""What attention reads of the context: bytes a token of depth costs every decoded token."""

from __future__ import annotations

import re

from reports.field.rows import FieldRow

# Bytes of keys and values of one token, 16 bits each, over the layers that attend to all of the context.
# Source: the models' config.json: layers with full attention x 2 x KV heads x head size x 2 bytes; with a latent
# (DeepSeek, GLM-5, GLM-4.7-Flash, Kimi): layers x (kv_lora_rank + qk_rope_head_dim) x 2 bytes.
KV_BYTES = {
    "qwen3-30b-a3b": 48 * 2 * 4 * 128 * 2,
    "qwen3-235b-a22b": 94 * 2 * 4 * 128 * 2,
    "qwen3-next-80b-a3b": 12 * 2 * 2 * 256 * 2,
    "qwen3.5-35b-a3b": 10 * 2 * 2 * 256 * 2,
    "qwen3.6-35b-a3b": 10 * 2 * 2 * 256 * 2,
    "qwen3.5-122b-a10b": 12 * 2 * 2 * 256 * 2,
    "qwen3.5-397b-a17b": 15 * 2 * 2 * 256 * 2,
    "gpt-oss-20b": 12 * 2 * 8 * 64 * 2,
    "gpt-oss-120b": 18 * 2 * 8 * 64 * 2,
    "glm-4.5-air": 46 * 2 * 8 * 128 * 2,
    "gemma-4-26b-a4b": 30 * 2 * 8 * 256 * 2,
    "deepseek-v3": 61 * 576 * 2,
    "glm-4.7-flash": 47 * 576 * 2,
    "deepseek-v2-lite": 27 * 576 * 2,
    "olmoe-1b-7b": 16 * 2 * 16 * 128 * 2,
}
OTHER_KV_BYTES = 40_000
ALLOCATED_FROM = 60_000  # a context of so many tokens is what was allocated, unless the row says that it was filled
_ALLOCATED = re.compile(r"allocated", re.IGNORECASE)
_FILLED = re.compile(r"filled", re.IGNORECASE)
_WHOLE = re.compile(r"\d+(?:\.0)?")


def depth_of(row: FieldRow) -> int:
    """Tokens in the context while decoding; 0 if the row says none, or only what was allocated."""
    if _WHOLE.fullmatch(row.context) is None:
        return 0
    depth = int(float(row.context))
    if _FILLED.search(row.flags):
        return depth
    told_as_flag = re.search(rf"(?:-c|--ctx-size|ctx) {depth}\b", row.flags) is not None
    if depth >= ALLOCATED_FROM or told_as_flag or _ALLOCATED.search(row.notes):
        return 0
    return depth


def kv_bytes(model: str, depth: int) -> int:
    """Bytes of keys and values that the context of this many tokens has."""
    return depth * KV_BYTES.get(model, OTHER_KV_BYTES)
