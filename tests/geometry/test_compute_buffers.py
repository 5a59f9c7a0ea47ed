"""Compute buffers: the rule by hand, and the sizes that engines logged or reserve."""

from __future__ import annotations

import csv
import struct
from dataclasses import replace
from pathlib import Path
from statistics import median

from flashmoe_sim.geometry import named_model, read_gguf
from flashmoe_sim.geometry.compute_buffers import RECENT_MASK_BYTES, GraphWidths, compute_buffer_bytes
from flashmoe_sim.geometry.model import ModelGeometry
from reports.referee.memory import buffer_mib
from tests.geometry.conftest import gguf, key, tensor

SMALL = GraphWidths(vocab=1000, hidden=10, width=5)
LOGGED = Path(__file__).parents[2] / "data/published/compute_buffers.csv"
U32 = 4
DATA_BYTES = 4 * 3 * 8 * 2 * 4 + 8 * 4  # four experts and a router


def small(*, vocab: int = 1000, **asked: int) -> int:
    return compute_buffer_bytes(replace(SMALL, vocab=vocab), **{"top_k": 2, "context": 0, "micro_batch": 64} | asked)


def test_logits_of_every_token() -> None:
    """64 rows of 1,000 logits and of 4 x 10 numbers, 4 bytes each."""
    assert small() == 4 * 64 * (1000 + 40)
    assert small(vocab=10_000, outputs=1) == 4 * (10_000 + 64 * 40)


def test_experts_and_masks_of_a_layer() -> None:
    """A token: 3 x 2 x 5 + 4 x 10 numbers, more than 2 x 2 x (10 + 5); and 6 bytes a cell, 2 in recent builds."""
    assert small(outputs=0, context=100) == 64 * (6 * 100 + 4 * 70)
    assert small(outputs=0, context=100, mask_bytes=RECENT_MASK_BYTES) == 64 * (2 * 100 + 4 * 70)
    assert small(top_k=8, outputs=0) == 64 * 4 * 2 * 8 * (10 + 5)


def test_latent_attention() -> None:
    """8 heads of 192 + 512 + 576 numbers, and 7 rows of 10."""
    latent = GraphWidths(vocab=1, hidden=10, width=5, latent_heads=8, latent_key=192)
    assert compute_buffer_bytes(latent, top_k=2, context=0, micro_batch=1) == 4 * (8 * 1280 + 70)


def test_experts_in_ram_are_copied_for_32_tokens_and_more() -> None:
    alone = small(micro_batch=32, outputs=0, context=100)
    assert small(micro_batch=32, outputs=0, context=100, copied_bytes=7) == alone + 7
    assert small(micro_batch=31, outputs=0, context=100, copied_bytes=7) < alone


def errors(basis: str) -> dict[str, float]:
    """Computed over logged size less one, of every row."""
    found = {}
    with LOGGED.open(newline="") as file:
        for row in csv.DictReader(file):
            computed = buffer_mib(row)
            if row["basis"] == basis:
                found[f"{row} {computed:.0f}"] = computed / float(row["mib"]) - 1
    return found


def test_sizes_in_logs_of_engines() -> None:
    """11 lines of logs: at most 0.0% too little, 11.3% too much."""
    found = errors("log").values()
    assert len(found) == 11
    assert 0 <= min(found) <= max(found) < 0.12
    assert median(found) < 0.05


def test_sizes_that_llama_cpp_reserves_for_named_models() -> None:
    """17 models: the worst are 8.2% too little (qwen3-next, -ub 2048) and 38% too much (minimax-m2.1, -ub 4096)."""
    found = errors("reserved")
    assert len(found) == 17 * 6
    assert min(found.values()) > -0.09
    assert max(found.values()) < 0.39
    assert max(error for row, error in found.items() if "minimax" not in row) < 0.16
    assert median(map(abs, found.values())) < 0.025
    of_512 = [error for row, error in found.items() if "'micro_batch': '512', 'outputs': ''" in row]
    assert len(of_512) == 17
    assert -0.05 < min(of_512) <= max(of_512) < 0.08


def test_widths_of_a_named_model() -> None:
    assert named_model("deepseek-v3").widths == GraphWidths(129280, 7168, 2048, 128, 192)
    assert named_model("qwen3-30b-a3b").widths == GraphWidths(151936, 2048, 768)
    assert named_model("qwen3.8-flash-next").widths is None  # its graph has another peak
    bits = 8 * named_model("gpt-oss-20b").embedding_bytes / (201088 * 2880)
    assert 8 < bits < 9  # as the file's other dense weights on average
    assert named_model("gemma-4-26b-a4b").embedding_bytes == 0  # it is the output matrix too


def test_widths_of_a_file(tmp_path: Path, moe_keys: list[bytes], moe_tensors: list[bytes]) -> None:
    """Experts are 8 x 2; 100 tokens of the vocabulary. The output matrix is a copy, or the embeddings themselves."""
    path, latent = tmp_path / "a.gguf", struct.pack("<I", 24)
    embedding, output = (tensor(name, (8, 100), 0, DATA_BYTES) for name in ("token_embd.weight", "output.weight"))

    def read(keys: list[bytes], *tensors: bytes) -> ModelGeometry:
        path.write_bytes(gguf([*moe_keys, *keys], [*moe_tensors, *tensors], data_bytes=DATA_BYTES + 3200))
        return read_gguf(path)

    tied = read([], embedding)
    assert (tied.widths, tied.embedding_bytes) == (GraphWidths(100, 8, 2), 0)
    assert read([], embedding, output).embedding_bytes == 3200
    keys = [key("qwen3moe.attention.key_length_mla", U32, latent), key("qwen3moe.attention.head_count", U32, latent)]
    assert read(keys, embedding).widths == GraphWidths(100, 8, 2, 24, 24)
    assert read([]).widths is None
