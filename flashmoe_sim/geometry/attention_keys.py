"""From the keys of a GGUF header to the memory of the context, architecture by architecture.

Source: llama.cpp b8456, as in Anemll/anemll-flash-llama.cpp 64e25509b: src/llama-model.cpp:555-2830 (load_hparams) and
:8726 (create_memory), src/llama-hparams.cpp (n_embd_k_gqa, n_embd_r, n_embd_s, is_mla, has_kv, set_swa_pattern). laguna
as in ggml-org/llama.cpp pull request 25595, qwen4exp as in 27742, deepseek4 as in 24162 and issue 27872 (its states).
The keys of an indexer (glm-dsa) have no cache there; deepseek32 and minimax-m3 keep them, which is not counted here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flashmoe_sim.geometry.families import MAX_LAYER
from flashmoe_sim.geometry.gguf_header import Value
from flashmoe_sim.geometry.model import Attention, LayerCache
from flashmoe_sim.io.errors import Malformed, shown

Keys = Mapping[str, Value | Sequence[Value]]

# Every layer keeps keys and values, or a latent, of all tokens.
WHOLE = frozenset(
    (
        *("arctic", "bailingmoe", "bailingmoe2", "dbrx", "deepseek", "deepseek2", "deepseek32", "dots1", "glm-dsa"),
        *("ernie4_5-moe", "glm4moe", "granitemoe", "grok", "grovemoe", "hunyuan-moe", "llama", "minimax-m2"),
        *("minimax-m3", "mistral4", "olmoe", "phimoe", "qwen2moe", "qwen3moe", "qwen3vlmoe"),
    )
)
# Some layers have a window: the last layer of every period has none, unless the header has its own pattern.
PERIODS = {"afmoe": 4, "exaone-moe": 4, "gpt-oss": 2, "llama4": 4, "mellum": 4, "smallthinker": 4}
FULL_FIRST = frozenset({"smallthinker"})  # the first layer of the period has none instead
WINDOWS = {"llama4": 8192, "smallthinker": 4096}  # whatever the header says, unless it says 0
# The header says for every layer whether it has a window.
PATTERNED = frozenset({"gemma4", "laguna", "mimo2", "step35"})
# Some layers have a state: all but the last of every period, or all without KV heads.
INTERVALS = {"qwen35moe": 4, "qwen3next": 4, "qwen4exp": 4}
HEADLESS = frozenset({"glm5next", "granitehybrid", "jamba", "kimi-k3", "kimi-linear", "lfm2moe", "nemotron_h_moe"})
# Beside a window, a layer keeps one position for every 4 or 128 tokens. With 4, an indexer chooses what is attended to.
COMPRESSED = frozenset({"deepseek4"})
CHOOSING = 4
CHOSEN = {"qwen4exp": 2048}  # tokens that a layer with keys and values attends to
# Layers that only draft tokens have no cache.
DRAFTING = frozenset({"bailingmoe2", "glm-dsa", "glm4moe", "glm5next"})
KNOWN = WHOLE | PERIODS.keys() | PATTERNED | INTERVALS.keys() | HEADLESS | COMPRESSED
RATIOS = "attention.compress_ratios"
MOST = 2**31


def attention_of(arch: str, keys: Keys) -> Attention | None:
    """The memory of the context, from keys without the architecture's name; None if they or the rule are missing.

    A list has one value per layer. Raises BadInput for an impossible value.
    """
    header = _Header(keys)
    blocks = header.number("block_count")
    if arch not in KNOWN or not 0 < blocks <= MAX_LAYER or "attention.head_count" not in keys:
        return None
    if arch in COMPRESSED:
        return _compressed(header, blocks) if RATIOS in keys else None
    heads = header.of_layers("attention.head_count", blocks)
    kv_heads = header.of_layers("attention.head_count_kv", blocks, otherwise=heads)
    head = header.number("embedding_length") // heads[0] if heads[0] else 0
    latent = bool(header.number("attention.key_length_mla"))
    windows = _windows(arch, header, blocks)
    pooled = header.number("attention.indexer.kpool")  # tokens that share a key of the indexer
    indexer = header.number("attention.indexer.key_length") // pooled if pooled else 0
    stateful, state = _stateful(arch, header, kv_heads), _state(arch, header, heads[0])
    kept_to = blocks - header.number("nextn_predict_layers") * (arch in DRAFTING)
    kept_to -= header.number("attention.shared_kv_layers") * (arch == "gemma4")
    layers = []
    for layer in range(max(kept_to, 0)):
        if stateful[layer]:
            layers.append(LayerCache(state=state))
            continue
        width = {}
        for what in ("key", "value"):
            whole = header.number(f"attention.{what}_length", otherwise=head)
            short = header.number(f"attention.{what}_length_swa", otherwise=whole)
            width[what] = short if windows[layer] else whole
        count = kv_heads[layer]
        values = 0 if latent else width["value"] * count
        of_heads = {"heads": heads[layer] * bool(count), "kv_heads": count}
        chosen = {"indexer": indexer, "chooses": CHOSEN.get(arch, 0)}
        layers.append(LayerCache(width["key"] * count, values, windows[layer], **of_heads, **chosen))
    return Attention(tuple(layers))


def _compressed(header: _Header, blocks: int) -> Attention:
    """Layers that keep a window, and before it one position of every few tokens, as a key that is its value too.

    The state holds what the next position is made of: values and scores, of twice the tokens if positions overlap.
    """
    heads = header.of_layers("attention.head_count", blocks)
    keys, window = header.number("attention.key_length"), header.number("attention.sliding_window")
    chosen_by = header.number("attention.indexer.key_length")
    layers = []
    for count, ratio in zip(heads, header.of_layers(RATIOS, blocks), strict=True):
        indexer = chosen_by if ratio == CHOOSING else 0
        overlapping = 2 if indexer else 1
        state = 2 * overlapping**2 * ratio * (keys + indexer)
        layers.append(LayerCache(keys, 0, window, state, count, 1, ratio, indexer))
    return Attention(tuple(layers))


def _windows(arch: str, header: _Header, blocks: int) -> list[int]:
    """The window of every layer; 0 for none."""
    window = header.number("attention.sliding_window", otherwise=WINDOWS.get(arch, 0))
    if window and arch in WINDOWS:
        window = WINDOWS[arch]
    pattern = "attention.sliding_window_pattern"
    if arch in PATTERNED:
        return [window * bool(has) for has in header.of_layers(pattern, blocks, otherwise=[0] * blocks)]
    if arch not in PERIODS:
        return [0] * blocks
    if isinstance(header.keys.get(pattern), Sequence):
        return [window * bool(has) for has in header.of_layers(pattern, blocks)]
    period = header.number(pattern, otherwise=PERIODS[arch])
    if not period:
        return [window] * blocks
    full = 0 if arch in FULL_FIRST else period - 1
    return [0 if layer % period == full else window for layer in range(blocks)]


def _stateful(arch: str, header: _Header, kv_heads: Sequence[int]) -> list[bool]:
    """Whether each layer keeps a state instead of keys and values."""
    if arch in INTERVALS:
        interval = header.number("full_attention_interval", otherwise=INTERVALS[arch])
        if not interval:
            raise Malformed("full_attention_interval is 0; expected 1 or more")
        return [(layer + 1) % interval != 0 for layer in range(len(kv_heads))]
    if arch == "nemotron_h_moe":
        forward = header.of_layers("feed_forward_length", len(kv_heads), otherwise=[0] * len(kv_heads))
        return [not (count or width) for count, width in zip(kv_heads, forward, strict=True)]
    return [arch in HEADLESS and not count for count in kv_heads]


def _state(arch: str, header: _Header, heads: int) -> int:
    """Numbers in the state of a layer: of its convolution and its recurrence."""
    kernel = header.number("ssm.conv_kernel")
    if arch == "lfm2moe":
        return header.number("embedding_length") * max(header.number("shortconv.l_cache") - 1, 0)
    if width := header.number("kda.head_dim"):
        inner = heads * width
        return 3 * (kernel - 1 if kernel else 3) * inner + width * inner
    inner, size = header.number("ssm.inner_size"), header.number("ssm.state_size")
    return max(kernel - 1, 0) * (inner + 2 * header.number("ssm.group_count") * size) + size * inner


@dataclass(frozen=True)
class _Header:
    """The keys of a header, read as whole numbers."""

    keys: Keys

    def number(self, name: str, *, otherwise: int = 0) -> int:
        return self._whole(name, self.keys.get(name, otherwise))

    def of_layers(self, name: str, blocks: int, *, otherwise: Sequence[int] = ()) -> Sequence[int]:
        """One number for each layer."""
        value = self.keys.get(name, otherwise)
        if not isinstance(value, Sequence) or isinstance(value, str):
            return [self._whole(name, value)] * blocks
        if len(value) < blocks:
            raise Malformed(f"{name} has {len(value)} numbers; expected one for each of {blocks} layers")
        return [self._whole(name, item) for item in value[:blocks]]

    @staticmethod
    def _whole(name: str, value: object) -> int:
        if not isinstance(value, int) or not 0 <= value < MOST:
            raise Malformed(f"{name} is {shown(value)}; expected a whole number from 0")
        return value
