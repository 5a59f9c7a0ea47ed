"""Files written by the `gguf` package, read by it and by us: the sizes must be equal, and our reader much faster."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type

from flashmoe_sim.geometry import read_gguf

EXPERTS = re.compile(r"blk\.(\d+)\.(ffn_(?:gate|up|gate_up|down)_exps)\.weight")
HIDDEN, WIDTH, N_EXPERTS, TOP_K = 512, 256, 6, 3


def add(writer: gguf.GGUFWriter, name: str, ne: tuple[int, ...], kind: Type) -> None:
    """A tensor of zeros; `ne` has the contiguous dimension first, numpy the other way round."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    raw = np.zeros((*reversed(ne[1:]), ne[0] // block * size), dtype=np.uint8)
    writer.add_tensor(name, raw, raw_dtype=kind)


def finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def moe_writer(path: Path, arch: str, **options: object) -> gguf.GGUFWriter:
    writer = gguf.GGUFWriter(path, arch, **options)
    writer.add_name(f"a small {arch}")
    writer.add_block_count(3)
    writer.add_expert_count(N_EXPERTS)
    writer.add_expert_used_count(TOP_K)
    writer.add_array("some.words", ["one", "two", ""])
    writer.add_array("some.numbers", [1.5, 2.5])
    return writer


def add_layer(writer: gguf.GGUFWriter, number: int, up: Type, down: Type, *, fused: bool = False) -> None:
    blk = f"blk.{number}"
    if fused:
        add(writer, f"{blk}.ffn_gate_up_exps.weight", (HIDDEN, 2 * WIDTH, N_EXPERTS), up)
    else:
        add(writer, f"{blk}.ffn_gate_exps.weight", (HIDDEN, WIDTH, N_EXPERTS), up)
        add(writer, f"{blk}.ffn_up_exps.weight", (HIDDEN, WIDTH, N_EXPERTS), up)
    add(writer, f"{blk}.ffn_down_exps.weight", (WIDTH, HIDDEN, N_EXPERTS), down)
    add(writer, f"{blk}.ffn_gate_inp.weight", (HIDDEN, N_EXPERTS), Type.F32)
    add(writer, f"{blk}.ffn_up_shexp.weight", (HIDDEN, WIDTH), Type.Q8_0)
    add(writer, f"{blk}.ffn_down_exps.bias", (HIDDEN, N_EXPERTS), Type.F32)


def qwen_q8(writer: gguf.GGUFWriter) -> None:
    for number in range(3):
        add_layer(writer, number, Type.Q8_0, Type.Q8_0)


def deepseek_k_mix(writer: gguf.GGUFWriter) -> None:
    writer.add_leading_dense_block_count(1)
    add(writer, "blk.0.ffn_up.weight", (HIDDEN, WIDTH), Type.Q4_K)
    add_layer(writer, 1, Type.Q4_K, Type.Q6_K)
    add_layer(writer, 2, Type.Q4_K, Type.Q4_K)


def gemma_fused(writer: gguf.GGUFWriter) -> None:
    add_layer(writer, 0, Type.Q4_K, Type.Q8_0, fused=True)
    add_layer(writer, 1, Type.IQ2_XXS, Type.Q5_0, fused=True)
    add(writer, "output.weight", (HIDDEN, 100), Type.F16)


def oss_mxfp4(writer: gguf.GGUFWriter) -> None:
    add_layer(writer, 0, Type.MXFP4, Type.MXFP4)
    add_layer(writer, 1, Type.F16, Type.BF16)


MODELS: dict[str, tuple[str, Callable[[gguf.GGUFWriter], None]]] = {
    "qwen3moe": ("qwen3moe", qwen_q8),
    "deepseek2": ("deepseek2", deepseek_k_mix),
    "gemma4": ("gemma4", gemma_fused),
    "gpt-oss": ("gpt-oss", oss_mxfp4),
}


@pytest.mark.parametrize("endianess", [gguf.GGUFEndian.LITTLE, gguf.GGUFEndian.BIG], ids=["little", "big"])
@pytest.mark.parametrize(("arch", "build"), MODELS.values(), ids=MODELS.keys())
def test_sizes_equal_the_gguf_package(
    tmp_path: Path, arch: str, build: Callable[[gguf.GGUFWriter], None], endianess: gguf.GGUFEndian
) -> None:
    path = tmp_path / "m.gguf"
    writer = moe_writer(path, arch, endianess=endianess)
    build(writer)
    finish(writer)
    model = read_gguf(path)
    assert (model.arch, model.name, model.top_k) == (arch, f"a small {arch}", TOP_K)
    families: dict[int, dict[str, int]] = {}
    dense_bytes = 0
    for tensor in gguf.GGUFReader(path).tensors:
        if match := EXPERTS.fullmatch(tensor.name):
            per_expert = int(tensor.n_bytes) // int(tensor.shape[-1])
            families.setdefault(int(match[1]), {})[match[2]] = per_expert
        else:
            dense_bytes += int(tensor.n_bytes)
    assert {number: dict(layer.family_bytes) for number, layer in model.layers.items()} == families
    assert {layer.n_experts for layer in model.layers.values()} == {N_EXPERTS}
    assert model.dense_bytes == dense_bytes
    assert model.notes == ()


def test_files_split_by_the_gguf_package(tmp_path: Path) -> None:
    writer = moe_writer(tmp_path / "m.gguf", "qwen3moe", split_max_tensors=5)
    qwen_q8(writer)
    finish(writer)
    paths = sorted(tmp_path.glob("m-*-of-*.gguf"))
    assert len(paths) > 2
    assert len({read_gguf(path).routed_bytes for path in paths}) == 1
    assert read_gguf(paths[1]).routed_bytes == 3 * N_EXPERTS * 3 * HIDDEN * WIDTH * 34 // 32


def test_a_large_vocabulary_is_stepped_over(tmp_path: Path) -> None:
    """40,000 tokens, their types and as many merges: at least 10 times faster than the `gguf` package."""
    path = tmp_path / "m.gguf"
    writer = moe_writer(path, "qwen3moe")
    words = [f"token {number}" for number in range(40_000)]
    writer.add_token_list(words)
    writer.add_token_types([1] * len(words))
    writer.add_token_merges(words)
    qwen_q8(writer)
    finish(writer)
    model = read_gguf(path)
    assert model.top_k == TOP_K
    ours = min(_seconds(lambda: read_gguf(path)) for _ in range(3))
    theirs = _seconds(lambda: gguf.GGUFReader(path))
    assert theirs > 10 * ours, f"{theirs:.3f} s by the gguf package, {ours:.3f} s by ours"


def _seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start
