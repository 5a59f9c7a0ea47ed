"""The sizes of a model's experts: the value that every geometry reader returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from typing import Any

from flashmoe_sim.geometry.compute_buffers import GraphWidths
from flashmoe_sim.geometry.ggml_types import BY_NAME
from flashmoe_sim.geometry.graph import UNKNOWN, Graph
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
    """What each layer of a model keeps of the context: keys and values of its tokens, or states of a fixed size.

    Source: llama.cpp b8456, as in Anemll/anemll-flash-llama.cpp 64e25509b: src/llama-kv-cache.cpp:20-200 (keys, values
    and latents of a layer), src/llama-kv-cache-iswa.cpp:15-60 (windows), src/llama-memory-recurrent.cpp:20-130
    (states), src/llama-context.cpp:2815 (cells), common/arg.cpp:391 (types). Flash attention is on, as by default:
    without it, values of layers with different sizes are padded to the largest.
    """

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


PAGE_BYTES = 16 * 1024
MAX_IO_SPLIT = 8
# Fields that decide which engines run a model, and in how much memory, and no count or second.
OF_ENGINES = ("graph", "width", "format", "widths", "drafting_layers", "unread_bytes", "repository")


class _Stored:
    """Pickled without what is worked out."""

    def __getstate__(self) -> dict[str, Any]:
        return {item.name: getattr(self, item.name) for item in fields(self)}  # type: ignore[arg-type]


@dataclass(frozen=True)
class LayerGeometry(_Stored):
    """One MoE layer: how many experts it has and the bytes of one expert of each tensor family."""

    n_experts: int
    family_bytes: Mapping[str, int]

    @cached_property
    def expert_bytes(self) -> int:
        """Bytes of one expert over all its families, which is the size of a slot."""
        return sum(self.family_bytes.values())

    def read_ops(self, *, io_split: int = 4) -> int:
        """Reads per install if each family may be cut into `io_split` page-aligned chunks."""
        return sum(self.family_reads(io_split=io_split))

    def family_reads(self, *, io_split: int = 4) -> tuple[int, ...]:
        """Reads of each family of one expert, in the order of `family_bytes`.

        Source: the patched runtime's `--moe-cache-io-split` (at most 8): a family whose bytes are a multiple of
        16 KiB is cut into up to that many chunks; any other family is one read.
        """
        return _reads(tuple(self.family_bytes.values()), io_split)


@lru_cache
def _reads(sizes: tuple[int, ...], io_split: int) -> tuple[int, ...]:
    """Of families of these bytes; the layers of a model are mostly alike."""

    def chunks(size: int) -> int:
        if size % PAGE_BYTES:
            return 1
        return max(1, min(io_split, MAX_IO_SPLIT, size // PAGE_BYTES))

    return tuple(map(chunks, sizes))


@dataclass(frozen=True)
class ModelGeometry(_Stored):
    """A model's MoE layers by layer number, its experts per token and its dense bytes.

    dense_bytes: all weights outside the routed experts; None if the source does not record them.
    dense_weights: how many weights these are; 0 if unknown.
    attention: what the context takes; None if the source does not record it.
    embedding_bytes: of dense_bytes, the table of the tokens' embeddings, if it is not the output matrix as well. A
        token reads a row of it, and an engine like llama.cpp keeps it in RAM.
    widths: of its graph, for compute buffers; None if the source does not record them.
    source: where the numbers come from, for display. gguf: the file, or the first of a split model; empty if there is
        none.
    graph: how its experts are computed. width: the inner dimension of an expert; 0 if unknown or not one.
    format: of its files: gguf, mlx, safetensors, or the program whose own format it is; empty if unknown.
    drafting_layers: layers of its own that only draft tokens (MTP).
    repository: of Hugging Face, `owner/name:quantization`, from which llama.cpp downloads it, or of MLX's files
        `owner/name`; empty if none is named.
    unread_bytes: of its files, what decoding reads nothing or next to nothing of, beside dense_bytes: layers that only
        draft tokens, a vision tower, a table of which a token reads a few rows.
    """

    name: str
    layers: Mapping[int, LayerGeometry]
    top_k: int
    source: str
    arch: str = ""
    quant: str = ""
    dense_bytes: int | None = None
    notes: tuple[str, ...] = ()
    attention: Attention | None = None
    gguf: str = ""
    widths: GraphWidths | None = None
    embedding_bytes: int = 0
    graph: Graph = UNKNOWN
    width: int = 0
    format: str = ""
    drafting_layers: int = 0
    repository: str = ""
    dense_weights: int = 0
    unread_bytes: int = 0

    @property
    def base_name(self) -> str:
        """Its name without the quantization or size."""
        return self.name.partition(":")[0].partition("@")[0]

    @property
    def streamed_bytes(self) -> int | None:
        """Bytes outside the routed experts that every token reads: without the table of embeddings; None if unknown."""
        return None if self.dense_bytes is None else max(self.dense_bytes - self.embedding_bytes, 0)

    @property
    def dense_weight_bytes(self) -> float | None:
        """Bytes of one weight outside the routed experts, in the mean; None if unknown."""
        return self.dense_bytes / self.dense_weights if self.dense_bytes and self.dense_weights else None

    @property
    def largest_matrix_bytes(self) -> int:
        """Bytes of the largest matrix of a layer's experts, with all experts of the layer."""
        return max(max(layer.family_bytes.values()) * layer.n_experts for layer in self.layers.values())

    @cached_property
    def alike(self) -> list[tuple[int, ...]]:
        """The layers by the tensors of their experts: numbers of those with as many experts of the same sizes."""
        found: dict[object, list[int]] = {}
        for number, layer in self.layers.items():
            found.setdefault((layer.n_experts, tuple(layer.family_bytes.items())), []).append(number)
        return [tuple(numbers) for numbers in found.values()]

    @cached_property
    def routed_bytes(self) -> int:
        """Bytes of all routed experts of all layers."""
        return sum(layer.expert_bytes * layer.n_experts for layer in self.layers.values())

    def bank_bytes(self, slots: int) -> int:
        """Bytes of a bank with `slots` slots in every layer."""
        return sum(layer.expert_bytes * slots for layer in self.layers.values())

    def token_cycle_bytes(self, *, top_k: int | None = None) -> int:
        """Bytes that one token needs if nothing is resident: top-k x expert bytes, summed over the layers."""
        return sum(layer.expert_bytes for layer in self.layers.values()) * (top_k or self.top_k)
