"""The compute buffer of an engine like llama.cpp on a GPU: what the tensors of one micro-batch take at their peak.

llama.cpp reserves it when it starts, for the largest graph: a micro-batch of a prompt at full context, with flash
attention. It has two peaks. At the end of the graph, the output of the last layer becomes logits of the whole
vocabulary. In a layer, the masks of attention and what the experts compute are in memory at once, and beside them, if
the experts are in RAM, one matrix of a layer's experts that was copied to the GPU.

Source: llama.cpp 0eca4d490: src/llama-context.cpp:440-650 (reserve), src/llama-graph.cpp:26 (mask, build_moe_ffn),
ggml/src/ggml-backend.cpp (copies of weights). Builds before June 2026 keep the mask in 32 bits and in 16, and the
logits of every token; from pull requests 23764 and 23861 on, the mask in 16 bits, and in llama-server one row of logits
for each sequence. The larger, older rule is the default here, because forks are older.

The factors are fitted to data/published/compute_buffers.csv: sizes that engines logged, and sizes that llama.cpp
reserves for headers with the dimensions of named models.
"""

from __future__ import annotations

from dataclasses import dataclass

MICRO_BATCH = 512  # llama.cpp's default, -ub
MASK_BYTES = 6  # of a token and a cell, in builds before June 2026
RECENT_MASK_BYTES = 2
FLOAT_BYTES = 4
OFFLOAD_TOKENS = 32  # the least micro-batch for which experts in RAM are copied to the GPU
LATENT = 512 + 576  # numbers that a head computes of a token beside its key, with latent attention (MLA)
OUTPUT_ROWS = 4  # rows of the hidden size that are in memory with the logits
LATENT_ROWS = 7  # the same beside latent attention
# Architectures whose graphs have other peaks, some far larger: a sparse attention with an indexer (1,164 MiB at 65,536
# tokens for qwen4exp: ggml-org/llama.cpp issue 27953), or a scan (7 GiB for a nemotron_h_moe: issue 24175).
OTHER_GRAPHS = frozenset({"deepseek32", "deepseek4", "glm-dsa", "glm5next", "nemotron_h_moe", "qwen4exp"})


@dataclass(frozen=True)
class GraphWidths:
    """The widths of a model's graph.

    vocab: tokens of the vocabulary. hidden: of the residual. width: of an expert. latent_heads, latent_key: heads and
    the length of a head's key, if attention is latent (MLA); 0 otherwise.
    """

    vocab: int
    hidden: int
    width: int
    latent_heads: int = 0
    latent_key: int = 0


def compute_buffer_bytes(
    of: GraphWidths,
    *,
    top_k: int,
    context: int,
    micro_batch: int = MICRO_BATCH,
    copied_bytes: int = 0,
    outputs: int | None = None,
    mask_bytes: int = MASK_BYTES,
) -> int:
    """Bytes of the compute buffer on one GPU that has a layer and the output.

    context: tokens. copied_bytes: of the largest expert matrix that is copied to the GPU, with all its experts.
    outputs: tokens of a micro-batch whose logits are kept; all if None. mask_bytes: MASK_BYTES or RECENT_MASK_BYTES.
    """
    rows = micro_batch if outputs is None else min(outputs, micro_batch)
    at_output = FLOAT_BYTES * (rows * of.vocab + OUTPUT_ROWS * micro_batch * of.hidden)
    experts = max(2 * top_k * (of.hidden + of.width), 3 * top_k * of.width + OUTPUT_ROWS * of.hidden)
    latent = of.latent_heads * (of.latent_key + LATENT) + LATENT_ROWS * of.hidden if of.latent_heads else 0
    copied = copied_bytes if micro_batch >= OFFLOAD_TOKENS else 0
    in_layer = micro_batch * (mask_bytes * context + FLOAT_BYTES * max(experts, latent)) + copied
    return max(at_output, in_layer)
