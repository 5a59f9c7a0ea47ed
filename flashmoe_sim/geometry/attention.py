"""The memory of a model's context: keys and values of its tokens, or states of a fixed size.

Source: llama.cpp b8456, as in Anemll/anemll-flash-llama.cpp 64e25509b: src/llama-kv-cache.cpp:20-200 (keys, values and
latents of a layer), src/llama-kv-cache-iswa.cpp:15-60 (windows), src/llama-memory-recurrent.cpp:20-130 (states),
src/llama-context.cpp:2815 (cells), common/arg.cpp:391 (types). Flash attention is on, as by default: without it, values
of layers with different sizes are padded to the largest.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from flashmoe_sim.geometry.ggml_types import BY_NAME
from flashmoe_sim.io.errors import OutOfRange, Unsupported, unknown_name

DEFAULT_TYPE = "f16"
CACHE_TYPES = ("f32", DEFAULT_TYPE, "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
CELLS = 256  # a cache has a multiple of this many
MICRO_BATCH = 512  # prompt tokens that a layer with a window keeps in addition to its window
STATE_BYTES = 4


@dataclass(frozen=True)
class LayerCache:
    """What one layer keeps of the context.

    keys, values: numbers kept per token; a latent, from which both are computed, counts as keys.
    window: tokens that it attends to; 0 for all. state: numbers kept for all tokens together.
    heads, kv_heads: of queries, and of keys and values; 0 if unknown.
    ratio: tokens before the window that one position is kept of; 0 if none is.
    indexer: numbers kept beside each position, which choose those that are attended to. chooses: how many of all tokens
        it chooses; 0 for all. An engine that masks the others, instead of leaving them out, still reads all of them.
    """

    keys: int = 0
    values: int = 0
    window: int = 0
    state: int = 0
    heads: int = 0
    kv_heads: int = 0
    ratio: int = 0
    indexer: int = 0
    chooses: int = 0

    @property
    def latent(self) -> bool:
        return self.keys > 0 and not self.values

    @property
    def readers(self) -> float:
        """Query heads that use the same keys and values."""
        return self.heads / self.kv_heads if self.heads and self.kv_heads else 1.0

    def attended(self, depth: int) -> int:
        """How many positions of `depth` earlier tokens a new one attends to, or at least scores."""
        if self.ratio:
            return min(depth, self.window) + depth // self.ratio
        return min(depth, self.window) if self.window else depth

    def position_bytes(self, kv_type: str = DEFAULT_TYPE) -> int:
        """Bytes kept per position."""
        return _row_bytes(self.keys, kv_type) + _row_bytes(self.values, kv_type) + _row_bytes(self.indexer, kv_type)

    def context_bytes(self, cells: int, *, kv_type: str, sequences: int) -> int:
        """Bytes of a context of so many cells, without the state."""
        in_window = min(cells, self.window * sequences + MICRO_BATCH) if self.window else cells
        found = self.position_bytes(kv_type) * _padded(in_window)
        if self.ratio:
            found += self.position_bytes(kv_type) * _padded(cells // self.ratio)
        return found


@dataclass(frozen=True)
class Attention:
    """What each layer of a model keeps of the context."""

    layers: tuple[LayerCache, ...]

    def context_bytes(self, tokens: int, *, kv_type: str = DEFAULT_TYPE, sequences: int = 1) -> int:
        """Bytes of a context of `tokens` tokens; 0 for none.

        kv_type: of keys and values, one of CACHE_TYPES; states have 32 bits. sequences: how many share the context;
        llama-server makes room for 4 unless given `-np 1`.
        Raises BadInput for a negative number, an unknown type, and a type whose blocks do not fit a layer's keys.
        """
        check_context(tokens, kv_type)
        if not tokens:
            return 0
        cells = _padded(tokens)
        total = 0
        for layer in self.layers:
            total += layer.context_bytes(cells, kv_type=kv_type, sequences=sequences)
            total += layer.state * STATE_BYTES * sequences
        return total

    def token_bytes(self, *, kv_type: str = DEFAULT_TYPE) -> int:
        """Bytes of each additional token, once every window is full."""
        check_context(0, kv_type)
        whole = sum(layer.position_bytes(kv_type) for layer in self.layers if not layer.window)
        return whole + sum(layer.position_bytes(kv_type) // layer.ratio for layer in self.layers if layer.ratio)


def check_context(tokens: int, kv_type: str) -> None:
    """Raise BadInput for a negative number of tokens and for an unknown cache type."""
    if tokens < 0:
        raise OutOfRange(f"--context {tokens}; expected a number of tokens from 0")
    if kv_type not in CACHE_TYPES:
        raise unknown_name("--kv-type", kv_type, CACHE_TYPES)


def _padded(tokens: int) -> int:
    return -(-tokens // CELLS) * CELLS


@lru_cache(maxsize=1024)
def _row_bytes(numbers: int, kv_type: str) -> int:
    storage = BY_NAME[kv_type.upper()]
    if numbers % storage.block_weights:
        raise Unsupported(
            f"--kv-type {kv_type}: has blocks of {storage.block_weights}, and a layer keeps {numbers} numbers of a "
            f"token; give {DEFAULT_TYPE}"
        )
    return numbers // storage.block_weights * storage.block_bytes
