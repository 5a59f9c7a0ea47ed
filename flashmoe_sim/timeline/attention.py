"""What attention to earlier tokens costs: bytes of keys and values read, and arithmetic, at a depth of the context.

Sources: llama.cpp 749f688, ggml/src/ggml-cuda/fattn.cu:358-545 (which kernel takes a batch of one token),
fattn-vec.cuh:106-111 (it computes with keys and values once for every query head), fattn-common.cuh:1022-1040 (wide
heads: a quantized cache is first converted to f16, as a whole). ROCm compiles the same kernels. The shares of `LATENT`
are medians of published slopes; those of quantized caches, of data/published/kv_types.csv (reports/field/kv_types.py).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from flashmoe_sim.geometry.attention import DEFAULT_TYPE, Attention, LayerCache
from flashmoe_sim.io.errors import BadInput, Incomplete
from flashmoe_sim.machines.attention import CPU
from flashmoe_sim.machines.machine import Compute

QUANTIZED = ("q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
EIGHT_BIT = "q8_0"  # of the quantized types, that with the least to unpack
# CUDA unpacks each number of a quantized cache again for every query head: so many in a second for each operation of
# the unit in a second, with 8 bits and with fewer. Large cards gain no more from a number of operations on.
CUDA_NUMBERS, CUDA_NUMBERS_FEWER_BITS, CUDA_MOST = 0.017, 0.0136, 1.5e12
# The same on ROCm, for the root of the GB/s at which attention reads: RDNA4 alone. A Radeon 8060S has 0.62 times the
# cores and clock of an R9700, and 0.63 times the root.
ROCM_NUMBERS, ROCM_NUMBERS_FEWER_BITS = 35e9, 13e9
# Elsewhere a quantized cache takes so many times as long as 16 bits, whatever its bytes. Vulkan: Radeon R9700 and
# 8060S. Metal: M5 Max before August 2026; later builds first convert the whole cache, as SYCL does. CPU: the bytes of 8
# bits, since 4 bits took longer than those on an x86 and an M4 Max.
QUANTIZED_TIMES = {"vulkan": 0.8, "metal": 1.6, CPU: 17 / 32}
UNKNOWN_API_QUANTIZED = 0.8
WIDE_HEAD = 512  # numbers of a key
# The rate at which a latent is read, over that of keys and values.
LATENT = {"cuda": 0.2, "rocm": 0.55, "vulkan": 0.43, "metal": 0.2, "sycl": 0.4, CPU: 0.7}
UNKNOWN_API_LATENT = 0.4
# The same where a layer chooses its tokens and the engine reads no others. With 1,000 tokens more in the context, a
# token of GLM-5.3-Flash takes 59 us longer on an M3 Ultra, for arithmetic (22 measured with ds4, 31 with MLX).
CHOSEN_LATENT = {"metal": 0.8}
# Engines score all compressed positions, choose some and mask the others. They read them at this share of the rate of
# keys and values, and their arithmetic takes so many times as long as on paper. With 1,000 tokens more in the context,
# a token of DeepSeek-V4-Flash takes 400 us longer on a Radeon 8060S with ROCm, 379 with Vulkan; with ds4, 284 on an M3
# Max, and 93 to 181 on the Ultras; a token of a prompt 150 with ROCm, 397 with Vulkan.
COMPRESSED, COMPRESSED_TIMES = {"metal": 0.21}, 2.5
COMPRESSED_OTHERWISE = 0.083
# Tokens that a layer does not choose are masked, and take so many times as long as others, or on CUDA this share of a
# read by every query head if the cache is not quantized, and these times if it is. With 1,000 tokens more in the
# context, a token of Qwen3.8-Flash-Next with llama.cpp takes 440 us longer on a Radeon 8060S (402, 420 and 534
# measured), 288 on an RTX 3090 (277) and 158 on an RTX PRO 6000 (152 and 183); with 8 bits, 240 on an RTX 3090 beside
# an RTX 5070 Ti (240 and 228).
MASKED_TIMES, MASKED_CUDA, MASKED_CUDA_QUANTIZED = 3.2, 0.7, 2.3
LATENT_NUMBERS = 1088  # multiplied by every head: the latent of 576 numbers as a key, 512 of them as a value


class AttentionCost(NamedTuple):
    """Seconds of all layers: to read what is kept, once for a batch; and to compute, for each token of it."""

    read_s: float
    token_s: float


NOTHING = AttentionCost(0.0, 0.0)


def attention_cost(attention: Attention, depth: int, unit: Compute, *, api: str, kv_type: str) -> AttentionCost:
    """What it costs a batch to attend to `depth` earlier tokens on a unit that has `attention_gb_s`.

    api: of the GPU, or CPU. A batch reads keys and values once; from some size on, arithmetic takes longer.
    """
    if not depth:
        return NOTHING
    assert unit.attention_gb_s is not None
    bytes_s = unit.attention_gb_s.value * 1e9
    read_bytes = computed = 0.0
    for layer in attention.layers:
        tokens = layer.attended(depth)
        share = _share_of(layer, api)
        masked = max(tokens - layer.chooses, 0) * (_masked_times(layer, api, kv_type) - 1) if layer.chooses else 0
        read_bytes += (tokens + masked) * _read_bytes(layer, unit, api, kv_type) / share
        computed += tokens * operations(layer)
    return AttentionCost(read_bytes / bytes_s, computed / unit.operations_s if unit.operations_s else 0.0)


def depth_unknown(depth: int, model: str) -> BadInput:
    """The error if a model does not say what its attention reads."""
    return Incomplete(
        f"--depth {depth}: what attention of {model} reads is not known; leave it out, or give a model of which "
        "`sim model show` knows the context"
    )


def operations(layer: LayerCache) -> float:
    """Multiplications and additions for each position that is attended to, by one token."""
    if layer.latent:
        return 2 * layer.heads * LATENT_NUMBERS * (COMPRESSED_TIMES if layer.ratio else 1.0)
    return 2 * layer.readers * (layer.keys + layer.values)


def _share_of(layer: LayerCache, api: str) -> float:
    """At which share of the rate of keys and values a layer's are read."""
    if layer.ratio:
        return COMPRESSED.get(api, COMPRESSED_OTHERWISE)
    if not layer.latent:
        return 1.0
    latent = LATENT.get(api, UNKNOWN_API_LATENT)
    return CHOSEN_LATENT.get(api, latent) if layer.indexer else latent


def _masked_times(layer: LayerCache, api: str, kv_type: str) -> float:
    """How many times as long a position takes that the layer does not choose."""
    if api in ("cuda", "rocm") and kv_type in QUANTIZED:
        return MASKED_CUDA_QUANTIZED
    if api == "cuda":
        return max(MASKED_CUDA * layer.readers, 1.0)
    return 1.0 if api == CPU else MASKED_TIMES


def _read_bytes(layer: LayerCache, unit: Compute, api: str, kv_type: str) -> float:
    """Bytes of 16-bit keys and values that take as long to read as a position of the layer does."""
    kept, wide = layer.position_bytes(kv_type), layer.position_bytes(DEFAULT_TYPE)
    if kv_type not in QUANTIZED:
        return kept
    if api == "sycl" or (api in ("cuda", "rocm") and _converted(layer)):
        return kept + 2 * wide
    if api in ("cuda", "rocm"):
        assert unit.attention_gb_s is not None
        numbers = (layer.keys + layer.values + layer.indexer) * layer.readers
        return max(kept, numbers / _numbers_s(unit, api, kv_type) * unit.attention_gb_s.value * 1e9)
    return wide * QUANTIZED_TIMES.get(api, UNKNOWN_API_QUANTIZED)


def _converted(layer: LayerCache) -> bool:
    """Whether kernels of CUDA and ROCm convert a quantized layer to 16 bits, as a whole, before they read it."""
    return layer.latent or layer.keys >= WIDE_HEAD * max(layer.kv_heads, 1)


def _numbers_s(unit: Compute, api: str, kv_type: str) -> float:
    """Numbers of a quantized cache that kernels of CUDA and ROCm unpack in a second."""
    assert unit.attention_gb_s is not None
    if api == "rocm" or not unit.operations_s:
        times = ROCM_NUMBERS if kv_type == EIGHT_BIT else ROCM_NUMBERS_FEWER_BITS
        return times * math.sqrt(unit.attention_gb_s.value)
    share = CUDA_NUMBERS if kv_type == EIGHT_BIT else CUDA_NUMBERS_FEWER_BITS
    return min(share * unit.operations_s, CUDA_MOST)
