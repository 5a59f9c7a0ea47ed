"""What attention to earlier tokens costs: bytes of keys and values read, and arithmetic, at a depth of the context.

Sources: llama.cpp 749f688, ggml/src/ggml-cuda/fattn.cu:358-545 (which kernel takes a batch of one token),
fattn-vec.cuh:106-111 (it computes with keys and values once for every query head), fattn-common.cuh:1022-1040 (wide
heads: a quantized cache is first converted to f16, as a whole). ROCm compiles the same kernels.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from flashmoe_sim.geometry.model import DEFAULT_TYPE, Attention, LayerCache
from flashmoe_sim.io.errors import BadInput, Incomplete
from flashmoe_sim.machines.attention_rates import CPU
from flashmoe_sim.machines.estimates import estimate, estimates
from flashmoe_sim.machines.machine import Compute

QUANTIZED = ("q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
EIGHT_BIT = "q8_0"  # of the quantized types, that with the least to unpack
WIDE_HEAD = 512  # numbers of a key
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
        times = estimate("attention.compressed_operations").value if layer.ratio else 1.0
        return 2 * layer.heads * LATENT_NUMBERS * times
    return 2 * layer.readers * (layer.keys + layer.values)


def _share_of(layer: LayerCache, api: str) -> float:
    """At which share of the rate of keys and values a layer's are read."""
    if layer.ratio:
        return estimate("attention.compressed", api).value
    if not layer.latent:
        return 1.0
    chosen = estimates("attention.chosen_latent").get(api) if layer.indexer else None
    return (chosen or estimate("attention.latent", api)).value


def _masked_times(layer: LayerCache, api: str, kv_type: str) -> float:
    """How many times as long a position takes that the layer does not choose."""
    if api in ("cuda", "rocm") and kv_type in QUANTIZED:
        return estimate("attention.masked.cuda_quantized_times").value
    if api == "cuda":
        return max(estimate("attention.masked.cuda_share").value * layer.readers, 1.0)
    return 1.0 if api == CPU else estimate("attention.masked.times").value


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
    return wide * estimate("attention.quantized_times", api).value


def _converted(layer: LayerCache) -> bool:
    """Whether kernels of CUDA and ROCm convert a quantized layer to 16 bits, as a whole, before they read it."""
    return layer.latent or layer.keys >= WIDE_HEAD * max(layer.kv_heads, 1)


def _numbers_s(unit: Compute, api: str, kv_type: str) -> float:
    """Numbers of a quantized cache that kernels of CUDA and ROCm unpack in a second."""
    assert unit.attention_gb_s is not None
    bits = "eight_bits" if kv_type == EIGHT_BIT else "fewer_bits"
    if api == "rocm" or not unit.operations_s:
        return estimate("attention.unpacked.rocm", bits).value * math.sqrt(unit.attention_gb_s.value)
    of_cuda = estimates("attention.unpacked.cuda")
    return min(of_cuda[bits].value * unit.operations_s, of_cuda["most"].value)
