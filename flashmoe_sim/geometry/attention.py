"""What the context of a model takes: keys and values of its tokens, or states of a fixed size.

Source: llama.cpp b8456, as in Anemll/anemll-flash-llama.cpp 64e25509b: src/llama-kv-cache.cpp:20-200 (keys, values and
latents of a layer), src/llama-kv-cache-iswa.cpp:15-60 (windows), src/llama-memory-recurrent.cpp:20-130 (states),
src/llama-context.cpp:2815 (cells), common/arg.cpp:391 (types). Flash attention is on, as by default: without it, values
of layers that differ are padded to the largest.
"""

from __future__ import annotations

from dataclasses import dataclass

from flashmoe_sim.geometry.ggml_types import BY_NAME
from flashmoe_sim.io.errors import BadInput, unknown_name

DEFAULT_TYPE = "f16"
CACHE_TYPES = ("f32", DEFAULT_TYPE, "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
CELLS = 256  # a cache has a whole number of these
MICRO_BATCH = 512  # tokens of a prompt that a layer with a window keeps beside its window
STATE_BYTES = 4


@dataclass(frozen=True)
class LayerCache:
    """What one layer keeps of the context.

    keys, values: numbers it keeps of a token; a latent, from which both are computed, counts as keys.
    window: tokens it looks back over; 0 for all. state: numbers it keeps of all tokens together.
    """

    keys: int = 0
    values: int = 0
    window: int = 0
    state: int = 0


@dataclass(frozen=True)
class Attention:
    """What each layer of a model keeps of the context."""

    layers: tuple[LayerCache, ...]

    def context_bytes(self, tokens: int, *, kv_type: str = DEFAULT_TYPE, sequences: int = 1) -> int:
        """Bytes of a context of so many tokens; none for no tokens.

        kv_type: of keys and values, one of CACHE_TYPES; states have 32 bits. sequences: that share the context;
        llama-server makes room for 4 unless it is told `-np 1`.
        Raises BadInput for a negative number, an unknown type, and one whose blocks do not fit a layer's keys.
        """
        check_context(tokens, kv_type)
        if not tokens:
            return 0
        cells = _padded(tokens)
        total = 0
        for layer in self.layers:
            kept = min(cells, layer.window * sequences + MICRO_BATCH) if layer.window else cells
            numbers = (layer.keys, layer.values)
            total += sum(_row_bytes(count, kv_type) for count in numbers) * _padded(kept)
            total += layer.state * STATE_BYTES * sequences
        return total

    def token_bytes(self, *, kv_type: str = DEFAULT_TYPE) -> int:
        """Bytes that each token more takes, once every window is full."""
        check_context(0, kv_type)
        return sum(
            _row_bytes(layer.keys, kv_type) + _row_bytes(layer.values, kv_type)
            for layer in self.layers
            if not layer.window
        )


def check_context(tokens: int, kv_type: str) -> None:
    """Raise BadInput for a negative number of tokens and for a type that no cache has."""
    if tokens < 0:
        raise BadInput(f"--context {tokens}; expected a number of tokens from 0")
    if kv_type not in CACHE_TYPES:
        raise unknown_name("--kv-type", kv_type, CACHE_TYPES)


def _padded(tokens: int) -> int:
    return -(-tokens // CELLS) * CELLS


def _row_bytes(numbers: int, kv_type: str) -> int:
    storage = BY_NAME[kv_type.upper()]
    if numbers % storage.block_weights:
        raise BadInput(
            f"--kv-type {kv_type}: has blocks of {storage.block_weights}, and a layer keeps {numbers} numbers of a "
            f"token; give {DEFAULT_TYPE}"
        )
    return numbers // storage.block_weights * storage.block_bytes
