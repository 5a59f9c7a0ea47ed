"""The weight matrices outside a model's routed experts, from its dimensions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from flashmoe_sim.geometry.named import NamedModel

HEAD = 64  # the width of a head of Mamba 2
KERNEL = 4  # of the convolutions before states
ROW = 256  # weights of a row, where the dimensions do not tell
OTHER = "other"  # weights that the dimensions do not explain
ALIKE = 0.02  # of the weights outside the experts that dimensions may leave unexplained: their total is rounded
GATED_QUERY = frozenset({"qwen3next", "qwen35moe", "qwen4exp"})  # the query's matrix holds a gate, too
GATED_HEADS = frozenset({"afmoe"})  # attention has a gate of its own
MAMBA = frozenset({"granitehybrid", "nemotron_h_moe"})
BESIDE = frozenset({"gemma4"})  # every layer has a dense network beside its experts
BIASES = frozenset({"gpt-oss"})  # routed experts have biases
SAME_VALUE = frozenset({"gemma4"})  # layers without a window have no matrix for values: keys are values
WITH_DRAFTING = frozenset({"glm4moe", "glm-dsa"})  # llama.cpp's files hold the layers that only draft tokens
NOT_ATTENTION = frozenset({"deepseek4", "deepseek_v41", "glm5next", "kimi-k3", "inkling"})  # matrices not known here


class Matrices(NamedTuple):
    """Matrices of one name: how many weights a row has, how many rows there are, and in which layer (-1: in none).

    float: never quantized, 32 bits a weight.
    """

    name: str
    layer: int
    row: int
    rows: int
    float: bool = False

    @property
    def weights(self) -> int:
        """How many weights they have."""
        return self.row * self.rows


def outside(model: NamedModel) -> list[Matrices]:
    """All of them, and as the last one `other`, if the model has more weights outside its experts than these."""
    found = [*_ends(model)]
    for layer in range(model.blocks):
        found += _attention(model, layer)
        found += _networks(model, layer)
    left = round(model.dense_params_b * 1e9) - sum(tensor.weights for tensor in found)
    if left > ALIKE * model.dense_params_b * 1e9:
        found.append(Matrices(OTHER, -1, ROW, left // ROW))
    return found


def drafting(model: NamedModel) -> list[Matrices]:
    """The matrices outside the routed experts of the layers that only draft tokens."""
    last = model.blocks - 1
    one = [
        *_attention(model, last),
        *_networks(model, last),
        Matrices("nextn.eh_proj", last, 2 * model.hidden, model.hidden),
    ]
    return one * model.drafting


def table(model: NamedModel) -> list[Matrices]:
    """The table of which a token reads a few rows, if the model has one."""
    rows = round(model.table_params_b * 1e9) // ROW
    return [Matrices("per_layer_token_embd", -1, ROW, rows)] if rows else []


def _ends(model: NamedModel) -> Iterator[Matrices]:
    if model.vocab:
        yield Matrices("token_embd", -1, model.hidden, model.vocab)
        if not model.tied:
            yield Matrices("output", -1, model.hidden, model.vocab)


def _networks(model: NamedModel, layer: int) -> Iterator[Matrices]:
    """The router, shared experts or dense network of a layer."""
    routed = layer in model.layer_numbers
    if routed:
        yield Matrices("ffn_gate_inp", layer, model.hidden, model.experts, float=True)
        if model.arch in BIASES:
            yield Matrices("ffn_exps.bias", layer, model.experts, 2 * model.width + model.hidden, float=True)
        yield from _network(model, layer, model.shared, "_shexp")
    if model.dense_width and (not routed or model.arch in BESIDE) and model.arch not in MAMBA:
        yield from _network(model, layer, model.dense_width, "")


def _network(model: NamedModel, layer: int, width: int, end: str) -> Iterator[Matrices]:
    if width:
        for part in ("gate", "up") if model.gated else ("up",):
            yield Matrices(f"ffn_{part}{end}", layer, model.hidden, width)
        yield Matrices(f"ffn_down{end}", layer, width, model.hidden)


def _attention(model: NamedModel, layer: int) -> Iterator[Matrices]:
    """The matrices of a layer's attention, or of what it has instead."""
    keys = _Keys(model, layer)
    if not keys["attention.head_count"] or model.arch in NOT_ATTENTION:
        return
    if keys["attention.key_length_mla"]:
        yield from _latent(model, layer, keys)
    elif model.arch in GATED_QUERY and (layer + 1) % (keys["full_attention_interval"] or 4):
        yield from _delta(model, layer, keys)
    elif keys["attention.head_count_kv"]:
        yield from _heads(model, layer, keys)
    elif model.arch in MAMBA and layer not in _forward(model):
        yield from _mamba(model, layer, keys)
    elif model.arch == "lfm2moe":
        yield Matrices("shortconv.in_proj", layer, model.hidden, 3 * model.hidden)
        yield Matrices("shortconv.out_proj", layer, model.hidden, model.hidden)


def _heads(model: NamedModel, layer: int, keys: _Keys) -> Iterator[Matrices]:
    short = "_swa" if keys["attention.sliding_window_pattern"] and keys["attention.key_length_swa"] else ""
    key, value = keys[f"attention.key_length{short}"], keys[f"attention.value_length{short}"]
    heads, kv_heads = keys["attention.head_count"], keys["attention.head_count_kv"]
    key = key or model.hidden // heads
    value = value or key
    yield Matrices("attn_q", layer, model.hidden, heads * key * (2 if model.arch in GATED_QUERY else 1))
    yield Matrices("attn_k", layer, model.hidden, kv_heads * key)
    if short or model.arch not in SAME_VALUE:
        yield Matrices("attn_v", layer, model.hidden, kv_heads * value)
    yield Matrices("attn_output", layer, heads * value, model.hidden)
    if model.arch in GATED_HEADS:
        yield Matrices("attn_gate", layer, model.hidden, heads * value)


def _latent(model: NamedModel, layer: int, keys: _Keys) -> Iterator[Matrices]:
    """Keys and values from one latent (MLA)."""
    heads, latent, value = (
        keys["attention.head_count"],
        keys["attention.value_length"],
        keys["attention.value_length_mla"],
    )
    turned = keys["attention.key_length"] - latent  # numbers with a position
    whole = keys["attention.key_length_mla"]
    if model.q_rank:
        yield Matrices("attn_q_a", layer, model.hidden, model.q_rank)
        yield Matrices("attn_q_b", layer, model.q_rank, heads * whole)
    else:
        yield Matrices("attn_q", layer, model.hidden, heads * whole)
    yield Matrices("attn_kv_a_mqa", layer, model.hidden, latent + turned)
    yield Matrices("attn_k_b", layer, whole - turned, heads * latent)
    yield Matrices("attn_v_b", layer, latent, heads * value)
    yield Matrices("attn_output", layer, heads * value, model.hidden)


def _delta(model: NamedModel, layer: int, keys: _Keys) -> Iterator[Matrices]:
    """A gated delta net."""
    inner, state = keys["ssm.inner_size"], keys["ssm.state_size"]
    mixed = inner + 2 * keys["ssm.group_count"] * state
    yield Matrices("attn_qkv", layer, model.hidden, mixed)
    yield Matrices("attn_gate", layer, model.hidden, inner)
    yield Matrices("ssm_alpha", layer, model.hidden, inner // state)
    yield Matrices("ssm_beta", layer, model.hidden, inner // state)
    yield Matrices("ssm_out", layer, inner, model.hidden)
    yield Matrices("ssm_conv1d", layer, KERNEL, mixed, float=True)


def _mamba(model: NamedModel, layer: int, keys: _Keys) -> Iterator[Matrices]:
    inner, states = keys["ssm.inner_size"], 2 * keys["ssm.group_count"] * keys["ssm.state_size"]
    yield Matrices("ssm_in", layer, model.hidden, 2 * inner + states + inner // HEAD)
    yield Matrices("ssm_out", layer, inner, model.hidden)
    yield Matrices("ssm_conv1d", layer, KERNEL, inner + states, float=True)


def _forward(model: NamedModel) -> frozenset[int]:
    """Layers that are nothing but a network."""
    return frozenset(model.layer_numbers) if model.arch == "nemotron_h_moe" else frozenset()


class _Keys:
    """The header's keys for one layer; 0 for what is missing."""

    def __init__(self, model: NamedModel, layer: int) -> None:
        self.table: Mapping[str, Any] = model.context
        self.layer = layer

    def __getitem__(self, name: str) -> int:
        value: Any = self.table
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        if isinstance(value, Sequence) and not isinstance(value, str):
            value = value[self.layer] if self.layer < len(value) else 0
        return int(value or 0)
