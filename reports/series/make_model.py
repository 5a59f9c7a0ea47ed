"""A model with the shape of a named one and random weights: it writes nonsense, at the speed of the real one."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import lru_cache
from math import sqrt
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.geometry.ggml_types import BY_NAME, tensor_bytes
from native_bridge.fixture.weights import stored


class Shape(NamedTuple):
    """Numbers of the model's configuration; quant: of the experts; dense: of everything else."""

    arch: str
    layers: int
    experts: int
    top_k: int
    width: int
    expert_width: int
    vocabulary: int
    heads: int
    kv_heads: int
    head_width: int
    quant: str
    dense: str
    window: int = 0


OSS = Shape("gpt-oss", 36, 128, 4, 2880, 2880, 201_088, 64, 8, 64, "MXFP4", "Q8_0", window=128)
SHAPES = {
    "gpt-oss-120b": OSS,
    "gpt-oss-20b": OSS._replace(layers=24, experts=32),
    "qwen3-30b-a3b": Shape("qwen3moe", 48, 128, 8, 2048, 768, 151_936, 32, 4, 128, "Q4_0", "Q4_0"),
}
CONTEXT = 131_072
FILE_TYPES = {"MXFP4": gguf.LlamaFileType.MOSTLY_MXFP4_MOE, "Q4_0": gguf.LlamaFileType.MOSTLY_Q4_0}
SEED = 1


class Part(NamedTuple):
    """A tensor: its storage type and dimensions, the contiguous one first; alike: what layers have in common."""

    name: str
    storage: str
    ne: tuple[int, ...]
    alike: str


def parts(shape: Shape) -> Iterator[Part]:
    """The tensors in the order of the file."""
    width, inner, experts = shape.width, shape.expert_width, shape.experts
    queries, keys = shape.heads * shape.head_width, shape.kv_heads * shape.head_width
    oss = shape.arch == "gpt-oss"
    yield Part("token_embd.weight", shape.dense, (width, shape.vocabulary), "embedding")
    yield Part("output_norm.weight", "F32", (width,), "norm")
    yield Part("output.weight", shape.dense, (width, shape.vocabulary), "embedding")
    projections = (("attn_q", width, queries), ("attn_k", width, keys), ("attn_v", width, keys))
    for layer in range(shape.layers):
        blk = f"blk.{layer}"
        yield Part(f"{blk}.attn_norm.weight", "F32", (width,), "norm")
        yield Part(f"{blk}.{'post_attention' if oss else 'ffn'}_norm.weight", "F32", (width,), "norm")
        for name, inputs, outputs in (*projections, ("attn_output", queries, width)):
            yield Part(f"{blk}.{name}.weight", shape.dense, (inputs, outputs), name)
            if oss:
                yield Part(f"{blk}.{name}.bias", "F32", (outputs,), "bias")
        if oss:
            yield Part(f"{blk}.attn_sinks.weight", "F32", (shape.heads,), "bias")
            yield Part(f"{blk}.ffn_gate_inp.bias", "F32", (experts,), "bias")
        else:
            yield Part(f"{blk}.attn_q_norm.weight", "F32", (shape.head_width,), "norm")
            yield Part(f"{blk}.attn_k_norm.weight", "F32", (shape.head_width,), "norm")
        yield Part(f"{blk}.ffn_gate_inp.weight", "F32", (width, experts), "router")
        for name, inputs, outputs in (("gate", width, inner), ("up", width, inner), ("down", inner, width)):
            yield Part(f"{blk}.ffn_{name}_exps.weight", shape.quant, (inputs, outputs, experts), "experts")
            if oss:
                yield Part(f"{blk}.ffn_{name}_exps.bias", "F32", (outputs, experts), "bias")


@lru_cache(8)
def weights(storage: str, ne: tuple[int, ...], alike: str) -> NDArray[Any]:
    """Layers are alike: their weights are the same bytes, since speed does not depend on them."""
    if alike in {"norm", "bias"}:
        return np.full(ne[::-1], float(alike == "norm"), np.float32)
    if storage == "F32":
        return np.random.default_rng(SEED).standard_normal(ne[::-1], np.float32) / np.float32(sqrt(ne[0]))
    return stored(storage, ne, 1 / sqrt(ne[0]), seed=SEED, name=alike)


def write(path: Path, shape: Shape, *, header: bool = False) -> None:
    """Write the GGUF file. header: without its weights, which is enough to predict with."""
    writer = gguf.GGUFWriter(path, shape.arch)
    writer.add_description("random weights")
    writer.add_file_type(FILE_TYPES[shape.quant])
    writer.add_block_count(shape.layers)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(shape.width)
    writer.add_feed_forward_length(shape.expert_width)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_width)
    writer.add_value_length(shape.head_width)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
    writer.add_expert_count(shape.experts)
    writer.add_expert_used_count(shape.top_k)
    writer.add_expert_feed_forward_length(shape.expert_width)
    if shape.window:
        writer.add_sliding_window(shape.window)
    writer.add_vocab_size(shape.vocabulary)
    writer.add_tokenizer_model("no_vocab")
    found = list(parts(shape))
    for part in found:
        kind, size = gguf.GGMLQuantizationType[part.storage], tensor_bytes(BY_NAME[part.storage], part.ne)
        writer.add_tensor_info(part.name, part.ne[::-1], np.dtype(np.float32), size, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for part in found if not header else ():
        writer.write_tensor_data(weights(part.storage, part.ne, part.alike))
    writer.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=SHAPES)
    parser.add_argument("out", type=Path)
    parser.add_argument("--header", action="store_true", help="leave out the weights")
    parser.add_argument("--layers", type=int, help="fewer than the model has")
    asked = parser.parse_args()
    shape = SHAPES[asked.model]
    write(asked.out, shape._replace(layers=asked.layers or shape.layers), header=asked.header)
