"""The dimensions of a mixture of experts in the words of a `config.json` of transformers.

Source: huggingface/transformers, configuration_*.py and modeling_*.py of the model types in ARCHITECTURES; which
matrices a layer has, and so how many weights are outside the routed experts, is read there. Checked against the
published configs and numbers of weights in tests/geometry/configs.toml.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flashmoe_sim.geometry.attention_keys import CHOOSING
from flashmoe_sim.geometry.config_fields import ConfigFields, each_alike, moe_layers
from flashmoe_sim.geometry.families import MAX_EXPERTS, MAX_LAYER
from flashmoe_sim.io.errors import Malformed, shown

# llama.cpp's name for each model type, of which the endings _text and _flash say nothing.
ARCHITECTURES = {
    "afmoe": "afmoe",
    "deepseek_v2": "deepseek2",
    "deepseek_v3": "deepseek2",
    "deepseek_v32": "deepseek32",
    "deepseek_v4": "deepseek4",
    "deepseek_v41": "deepseek_v41",
    "dots1": "dots1",
    "ernie4_5_moe": "ernie4_5-moe",
    "gemma4": "gemma4",
    "glm4_moe": "glm4moe",
    "glm4_moe_lite": "deepseek2",
    "glm4v_moe": "glm4moe",
    "glm_moe_dsa": "glm-dsa",
    "gpt_oss": "gpt-oss",
    "granitemoe": "granitemoe",
    "granitemoehybrid": "granitehybrid",
    "hunyuan_v1_moe": "hunyuan-moe",
    "hunyuan": "hunyuan-moe",
    "kimi_k2": "deepseek2",
    "kimi_k25": "deepseek2",
    "kimi_linear": "kimi-linear",
    "laguna": "laguna",
    "lfm2_moe": "lfm2moe",
    "llama4": "llama4",
    "mellum": "mellum",
    "mimo_v2": "mimo2",
    "minimax_m2": "minimax-m2",
    "minimax_m3": "minimax-m3",
    "mixtral": "llama",
    "nemotron_h": "nemotron_h_moe",
    "olmoe": "olmoe",
    "phimoe": "phimoe",
    "qwen2_moe": "qwen2moe",
    "qwen3_5_moe": "qwen35moe",
    "qwen3_moe": "qwen3moe",
    "qwen3_next": "qwen3next",
    "qwen3_vl_moe": "qwen3moe",
    "step3p5": "step35",
    "step3p7": "step35",
}
_BY_CLASS = {re.sub("_", "", kind): kind for kind in ARCHITECTURES} | {
    "deepseekref": "deepseek_v4",
    "kimik3": "kimi_k3",
}
ARCHITECTURES["kimi_k3"] = "kimi-k3"
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_moe_experts", "n_experts")
TOP_K = (
    *("num_experts_per_tok", "num_experts_per_token", "top_k_experts", "experts_per_token"),
    *("moe_topk", "moe_k", "moe_top_k"),
)
LAYERS, HIDDEN = ("num_hidden_layers", "num_layers", "n_layer", "n_layers"), ("hidden_size", "d_model")
VOCAB = ("vocab_size",)
_HEADS = ("num_attention_heads", "n_head", "n_heads")
_KV = ("num_key_value_heads", "num_kv_heads", "num_attention_groups", "kv_n_heads")
_DENSE = ("dense_intermediate_size", "intermediate_size_mlp", "intermediate_size", "ffn_hidden_size")
_WIDTH = ("moe_intermediate_size", "expert_ffn_hidden_size", "expert_intermediate_size")
_ONE_WIDTH = ("intermediate_size", "ffn_hidden_size")  # of models whose networks are all experts
# Model types whose experts have that width: the others say it apart, and have dense networks of another one.
_OF_ONE_WIDTH = frozenset({"gpt-oss", "granitehybrid", "granitemoe", "hunyuan-moe", "llama", "olmoe", "phimoe"})
_OF_NO_OTHER = frozenset({"llama4", "minimax-m2"})  # whose moe_intermediate_size, if there is any, is of something else
_SHARED = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert")
_SHARED_WIDTH = (
    "shared_expert_intermediate_size",
    "moe_shared_expert_intermediate_size",
    "shared_intermediate_size",
    "share_expert_dim",
)
_STATES = ("linear_", "mamba", "ssm", "conv_", "gla_", "rwkv", "hybrid")  # beginnings of fields of other layers
_DRAFTING = ("num_nextn_predict_layers", "mtp_num_hidden_layers")
_READ = frozenset(
    {
        *LAYERS,
        *_DENSE,
        *_WIDTH,
        *_ONE_WIDTH,
        *_SHARED,
        *_SHARED_WIDTH,
        *_DRAFTING,
        "sliding_window",
        "sliding_window_size",
    }
)
BILLION, MOST_DRAFTING = 1e9, 16


@dataclass(frozen=True, kw_only=True)
class ConfigShape:
    """The dimensions that a config says, in the words of NamedModel.

    kind: the model type. shared: width of a layer's shared experts together. dense_width: of a dense layer's network.
    q_rank: of latent queries; 0 for none. dense_b: billions of weights outside the routed experts; 0 if not known.
    parts_b: the same by part. context: keys of a GGUF header for the context; empty if not known.
    notes: what is not known. unread: fields that nothing here knows.
    """

    kind: str
    arch: str
    blocks: int
    moe_layers: tuple[int, ...]
    experts: int
    top_k: int
    hidden: int
    width: int
    vocab: int
    tied: bool
    gated: bool
    fused: bool
    groups: int | None
    drafting: int
    shared: int
    dense_width: int
    q_rank: int
    dense_b: float
    parts_b: Mapping[str, float]
    context: Mapping[str, Any]
    notes: tuple[str, ...]
    unread: tuple[str, ...]


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def kind_of(document: Mapping[str, Any], text: Mapping[str, Any]) -> str:
    """The model type of a config, in a spelling of ARCHITECTURES if it has one."""
    classes = [name for one in (text, document) for name in _list(one.get("architectures")) if isinstance(name, str)]
    given = [str(text.get("model_type") or ""), *classes, str(document.get("model_type") or "")]
    for name in given:
        plain = re.sub(r"For\w+$|Text$|_text$|_flash$|_sparse$", "", name)
        letters = re.sub(r"[^a-z0-9]", "", re.sub(r"Flash$|Sparse$|For\w+$", "", plain).lower())
        if letters in _BY_CLASS and not (letters == "kimilinear" and "KimiK3ForConditionalGeneration" in classes):
            return _BY_CLASS[letters]
    return next(filter(None, given), "")


def shape_of(document: Mapping[str, Any], text: Mapping[str, Any], where: str) -> ConfigShape:
    """The dimensions of a model whose language part is `text`. Raises BadInput for impossible values."""
    its, kind = ConfigFields(text, where), kind_of(document, text)
    arch = ARCHITECTURES.get(kind, "")
    pattern = _pattern(its)
    blocks = len(pattern) or its.number(*LAYERS)
    experts, top_k, hidden = its.number(*EXPERTS), its.number(*TOP_K), its.number(*HIDDEN)
    width = _width(its, arch)
    latent = its.number("moe_latent_size", "routed_expert_hidden_size")
    for name, value, most in (("num_hidden_layers", blocks, MAX_LAYER), ("num_experts", experts, MAX_EXPERTS)):
        if not 0 < value <= most:
            raise Malformed(f"{name} is {value}; expected 1 to {most}", where=where, advice="is this the whole file?")
    drafting = its.number(*_DRAFTING)
    if drafting > MOST_DRAFTING:
        raise its.wrong(next(name for name in _DRAFTING if text.get(name)), f"at most {MOST_DRAFTING}")
    if not hidden or not width or not 0 < top_k <= experts:
        raise Malformed(
            f"hidden size {hidden}, width of an expert {width}, {top_k} of {experts} experts a token; expected each "
            "above 0, and no more experts a token than there are",
            where=where,
            advice="give the config.json as it was published",
        )
    gated = its.text.get("mlp_hidden_act") != "relu2"
    its.asked.add("mlp_hidden_act")
    its.asked.update(_READ)
    moe = moe_layers(its, blocks, pattern, kind, EXPERTS)
    for names in (EXPERTS, TOP_K, _WIDTH, _ONE_WIDTH):
        each_alike(its, names, moe, blocks)
    tied = bool({**document, **text}.get("tie_word_embeddings", arch in ("gemma4", "ernie4_5-moe", "lfm2moe")))
    its.asked |= {"tie_word_embeddings", "tie_embedding"}
    tied = tied or bool(text.get("tie_embedding"))
    vocab = its.number(*VOCAB)
    attention, context = _attention(its, blocks, pattern, arch, hidden)
    matrices = 3 if gated else 2
    dense_layers = [number for number in range(blocks) if number not in moe and (not pattern or pattern[number] == "-")]
    everywhere = arch == "gemma4" or its.has("residual_moe")  # beside the experts
    twice = 2 if kind == "longcat_flash" else 0  # a layer has two attentions and dense networks beside its experts
    dense_width = its.number(*_DENSE)
    shared = _shared_width(its, width, arch)
    parts = {
        "embedding": vocab * hidden * (1 if tied else 2),
        "attention": attention and attention * (twice or 1),
        "shared experts": len(moe) * matrices * hidden * shared,
        "dense layers": (blocks * (twice or 1) if everywhere or twice else len(dense_layers))
        * matrices
        * hidden
        * dense_width,
        "routers": len(moe) * hidden * experts,
        "latents": len(moe) * 2 * hidden * latent,
        "experts' biases": len(moe) * experts * (2 * width + hidden) if arch == "gpt-oss" else 0,
    }
    notes = []
    if set(its.whole("attn_type_list")) - {1}:
        notes.append("some layers have a linear attention, which is counted as a plain one")
    if not arch:
        notes.append(
            f"the model type {shown(kind)} is not known, nor what its context takes and which engines run it; its "
            "attention is counted as a plain one"
        )
    if not arch and not its.number(*_WIDTH):
        notes.append(f"the width of an expert, {width}, is that of all its networks")
    unread = tuple(its.unknown())
    notes += said_of(unread)
    groups = text.get("n_group", 0) or 0
    return ConfigShape(
        kind=kind,
        arch=arch,
        blocks=blocks,
        moe_layers=tuple(moe),
        experts=experts,
        top_k=top_k,
        hidden=latent or hidden,
        width=width,
        vocab=0 if latent else vocab,
        tied=tied,
        gated=gated,
        fused=arch == "gemma4",
        groups=groups if type(groups) is int else None,
        drafting=drafting,
        shared=shared,
        dense_width=dense_width if dense_layers or everywhere else 0,
        q_rank=its.number("q_lora_rank"),
        dense_b=0.0 if attention is None else sum(parts.values()) / BILLION,  # type: ignore[arg-type]
        parts_b={name: value / BILLION for name, value in parts.items() if value},
        context=context,
        notes=tuple(notes),
        unread=unread,
    )


def said_of(unread: Sequence[str]) -> list[str]:
    """The note on fields that nothing here knows; none if there are none."""
    return [f"not known, and not counted: {', '.join(unread[:12])}"] if unread else []


def _pattern(its: ConfigFields) -> str:
    """A letter for each layer of a model whose layers are of one kind each: M, E, * (attention), - (dense)."""
    its.asked |= {"hybrid_override_pattern", "layers_block_type"}
    pattern = its.text.get("hybrid_override_pattern")
    if isinstance(pattern, str):
        return re.sub(r"[^ME*-]", "", pattern)
    kinds = its.text.get("layers_block_type")
    letters = {"mamba": "M", "moe": "E", "attention": "*", "mlp": "-"}
    if isinstance(kinds, list) and "moe" in kinds:
        return "".join(letters.get(str(kind), "-") for kind in kinds)
    return ""


def _width(its: ConfigFields, arch: str) -> int:
    """The width of a routed expert. Raises BadInput if a model type that says it apart does not."""
    if arch in _OF_NO_OTHER:
        return its.number("intermediate_size")
    width = its.number(*_WIDTH)
    if not width and arch and arch not in _OF_ONE_WIDTH:
        raise its.wrong(_WIDTH[0], "the width of an expert")
    return width or its.number(*_ONE_WIDTH)


def _shared_width(its: ConfigFields, width: int, arch: str) -> int:
    """The width of all shared experts of a layer together."""
    count, each = its.number(*_SHARED), its.number(*_SHARED_WIDTH)
    if arch == "llama4":
        return width
    if each:
        return each * max(count, 1) if "moe_shared_expert_intermediate_size" in its.text else each
    return count * width


def _attention(
    its: ConfigFields, blocks: int, pattern: str, arch: str, hidden: int
) -> tuple[float | None, dict[str, Any]]:
    """The weights of all layers' attention or states, and the keys that say what they keep; None if not known."""
    heads, kv_heads = its.number(*_HEADS), its.number(*_KV, otherwise=its.number(*_HEADS))
    head = its.number("head_dim", "attention_head_dim") or (hidden // heads if heads else 0)
    value = its.number("v_head_dim", otherwise=head)
    kinds = its.texts("layer_types", blocks)
    keys: dict[str, Any] = {"attention.head_count": heads, "attention.head_count_kv": kv_heads}
    if arch == "deepseek4":
        return _compressed(its, blocks, hidden, heads, head)
    if not heads or (not arch and any(name.startswith(_STATES) for name in its.text)):
        return None, {}
    if rank := its.number("kv_lora_rank"):
        return _latent(its, blocks, arch, hidden, heads, rank)
    keys |= {"attention.key_length": head, "attention.value_length": value}
    gated = 2 if its.has("attn_output_gate") or its.text.get("gating") is True or arch == "afmoe" else 1
    its.asked |= {"gating"}
    whole = hidden * (heads * head * gated + kv_heads * (head + value) + heads * value)
    if pattern:
        return _of_pattern(its, pattern, hidden, heads, kv_heads, head)
    if arch in ("qwen3next", "qwen35moe"):
        return _deltas(its, kinds, blocks, hidden, whole, keys)
    if arch == "granitehybrid":
        return _mambas(its, kinds, blocks, hidden, whole, keys)
    if arch == "lfm2moe":
        full = [kind == "full_attention" for kind in kinds] or [True] * blocks
        keys |= {
            "attention.head_count_kv": [kv_heads * has for has in full],
            "shortconv.l_cache": its.number("conv_L_cache"),
            "embedding_length": hidden,
        }
        return sum(full) * whole + full.count(False) * 4 * hidden * hidden, keys
    return _windows(its, kinds, blocks, arch, hidden, keys)


def _latent(
    its: ConfigFields, blocks: int, arch: str, hidden: int, heads: int, rank: int
) -> tuple[float | None, dict[str, Any]]:
    """Latent attention (MLA), of all layers, or of some with states in the others (KDA)."""
    nope, rope, value = its.number("qk_nope_head_dim"), its.number("qk_rope_head_dim"), its.number("v_head_dim")
    its.asked |= {"qk_head_dim", "head_dim"}
    query_rank = its.number("q_lora_rank")
    query = hidden * query_rank + query_rank * heads * (nope + rope) if query_rank else hidden * heads * (nope + rope)
    index_heads, index = its.number("index_n_heads"), its.number("index_head_dim")
    its.asked |= {"index_topk"}
    indexer = index_heads * index * query_rank + hidden * (index + index_heads)
    gate = hidden * heads * value if its.has("mla_use_output_gate") else 0
    its.asked.add("mla_use_nope")
    each = query + hidden * (rank + rope) + rank * heads * (nope + value) + heads * value * hidden + indexer + gate
    keys: dict[str, Any] = {
        "attention.head_count": heads,
        "attention.head_count_kv": 1,
        "attention.key_length": rank + rope,
        "attention.value_length": rank,
        "attention.key_length_mla": nope + rope,
        "attention.value_length_mla": value,
    }
    if not its.table("linear_attn_config"):
        return blocks * each, keys
    states = ConfigFields(its.table("linear_attn_config"), its.where)
    listed = states.whole("full_attn_layers")
    full = [number in listed for number in range(1, blocks + 1)]
    width, of_heads = states.number("head_dim"), states.number("num_heads", otherwise=heads)
    keys |= {"attention.head_count_kv": [int(has) for has in full]}
    keys |= {"ssm.conv_kernel": states.number("short_conv_kernel_size", otherwise=4), "kda.head_dim": width}
    inner = width * of_heads
    state = hidden * (4 * inner + of_heads + 2 * width) + 2 * width * inner
    return sum(full) * each + full.count(False) * state, keys


def _of_pattern(
    its: ConfigFields, pattern: str, hidden: int, heads: int, kv_heads: int, head: int
) -> tuple[float | None, dict[str, Any]]:
    """Layers of Mamba, attention and feed-forward, one kind each."""
    its.asked |= {"expand", "conv_kernel"}
    its.asked.add("intermediate_size")
    inner = its.number("mamba_num_heads") * its.number("mamba_head_dim")
    state, groups, kernel = its.number("ssm_state_size"), its.number("n_groups"), its.number("conv_kernel")
    mamba = _mamba(hidden, inner, state, groups, kernel, its.number("mamba_num_heads"))
    width = its.number("moe_intermediate_size")
    keys = {
        "attention.head_count": heads,
        "attention.head_count_kv": [kv_heads * (letter == "*") for letter in pattern],
        "attention.key_length": head,
        "attention.value_length": head,
        "feed_forward_length": [width * (letter in "E-") for letter in pattern],
        "ssm.conv_kernel": kernel,
        "ssm.inner_size": inner,
        "ssm.state_size": state,
        "ssm.group_count": groups,
    }
    whole = hidden * head * (2 * heads + 2 * kv_heads)
    return pattern.count("*") * whole + pattern.count("M") * mamba, keys


def _mamba(hidden: int, inner: int, state: int, groups: int, kernel: int, heads: int) -> int:
    mixed = inner + 2 * groups * state
    return hidden * (inner + mixed + heads) + kernel * mixed + inner * hidden


def _mambas(
    its: ConfigFields, kinds: Sequence[str], blocks: int, hidden: int, whole: int, keys: dict[str, Any]
) -> tuple[float | None, dict[str, Any]]:
    """Layers of Mamba, with attention in some."""
    full = [kind == "attention" for kind in kinds] or [True] * blocks
    inner = its.number("mamba_expand") * hidden
    state, groups, kernel = its.number("mamba_d_state"), its.number("mamba_n_groups"), its.number("mamba_d_conv")
    its.asked |= {"mamba_d_head", "mamba_chunk_size", "mamba_n_heads"}
    kv_heads = keys["attention.head_count_kv"]
    keys |= {
        "attention.head_count_kv": [kv_heads * has for has in full],
        "ssm.conv_kernel": kernel,
        "ssm.inner_size": inner,
        "ssm.state_size": state,
        "ssm.group_count": groups,
    }
    mamba = _mamba(hidden, inner, state, groups, kernel, its.number("mamba_n_heads"))
    return sum(full) * whole + full.count(False) * mamba, keys


def _deltas(
    its: ConfigFields, kinds: Sequence[str], blocks: int, hidden: int, whole: int, keys: dict[str, Any]
) -> tuple[float | None, dict[str, Any]]:
    """Layers with gated delta states, and attention in every few."""
    every = its.number("full_attention_interval", otherwise=4)
    full = [kind == "full_attention" for kind in kinds] or [(number + 1) % every == 0 for number in range(blocks)]
    key_heads, key = its.number("linear_num_key_heads"), its.number("linear_key_head_dim")
    value_heads, value = its.number("linear_num_value_heads"), its.number("linear_value_head_dim")
    kernel, inner = its.number("linear_conv_kernel_dim"), value_heads * value
    if its.text.get("attn_output_gate") is None:  # Qwen3-Next always has it
        whole += hidden * keys["attention.head_count"] * keys["attention.key_length"]
    keys |= {
        "full_attention_interval": full.index(True) + 1 if True in full else every,
        "ssm.conv_kernel": kernel,
        "ssm.inner_size": inner,
        "ssm.state_size": key,
        "ssm.group_count": key_heads,
    }
    mixed = 2 * key_heads * key + inner
    delta = hidden * (mixed + inner + 2 * value_heads) + kernel * mixed + inner * hidden
    return sum(full) * whole + full.count(False) * delta, keys


def _windows(
    its: ConfigFields, kinds: Sequence[str], blocks: int, arch: str, hidden: int, keys: dict[str, Any]
) -> tuple[float | None, dict[str, Any]]:
    """Layers of plain attention, some with a window, which may have other heads."""
    unlimited = -1 in (its.text.get("sliding_window"), its.text.get("sliding_window_size"))
    window = 0 if unlimited else its.number("sliding_window", "sliding_window_size")
    local = [kind != "full_attention" for kind in kinds] or its.marks("hybrid_layer_pattern", blocks) or []
    heads, kv_heads = keys["attention.head_count"], keys["attention.head_count_kv"]
    head, value = keys["attention.key_length"], keys["attention.value_length"]
    per_head = its.whole("num_attention_heads_per_layer", blocks)
    other = ConfigFields(its.table("attention_other_setting"), its.where).number(*_HEADS)
    all_heads = per_head[:blocks] or [heads] * blocks
    all_kv, global_head = [kv_heads] * blocks, its.number("global_head_dim", otherwise=head)
    its.asked |= {"num_kv_shared_layers", "attention_k_eq_v", "hidden_size_per_layer_input"}
    if local and other:
        all_heads = [other if has else heads for has in local]
    elif arch == "step35" and local and not per_head:
        all_heads = [heads * 3 // 2 if has else heads for has in local]
    if local and (swa := its.number("swa_num_key_value_heads")):
        all_kv = [swa if has else kv_heads for has in local]
    if local and (every := its.number("num_global_key_value_heads")):
        all_kv = [kv_heads if has else every for has in local]
    weights = 0
    for number in range(blocks):
        far = bool(local) and not local[number] and global_head != head
        key, val = (global_head, global_head) if far else (head, value)
        values = 0 if far and its.text.get("attention_k_eq_v") else all_kv[number] * val
        gate = all_heads[number] * key if arch == "afmoe" else all_heads[number] if arch in ("step35", "laguna") else 0
        weights += hidden * (all_heads[number] * (key + val) + all_kv[number] * key + values + gate)
    if rank := its.number("share_q_dim"):  # Step3's queries
        weights += blocks * (hidden * rank + (rank - hidden) * heads * head)
    if len(set(all_heads)) > 1:
        keys["attention.head_count"] = all_heads
    if len(set(all_kv)) > 1:
        keys["attention.head_count_kv"] = all_kv
    if global_head != head:
        keys |= {"attention.key_length_swa": head, "attention.value_length_swa": value}
        keys |= {"attention.key_length": global_head, "attention.value_length": global_head}
    if window and (local or arch in ("mellum", "afmoe")):
        keys["attention.sliding_window"] = window
    if any(local) and arch != "llama4":
        keys["attention.sliding_window_pattern"] = local
    return weights, keys


def _compressed(
    its: ConfigFields, blocks: int, hidden: int, heads: int, head: int
) -> tuple[float | None, dict[str, Any]]:
    """DeepSeek-V4's attention: a window, and before it a position of every few tokens, which an indexer may choose."""
    ratios = its.whole("compress_ratios", blocks)
    its.asked |= {"index_topk", "qk_rope_head_dim"}
    query_rank, out_rank, groups = its.number("q_lora_rank"), its.number("o_lora_rank"), its.number("o_groups")
    index_heads, index = its.number("index_n_heads"), its.number("index_head_dim")
    if not ratios or not query_rank:
        return None, {}
    query = hidden * query_rank + query_rank * heads * head
    out = heads * head * out_rank + groups * out_rank * hidden
    weights = blocks * (query + hidden * head + out)
    for ratio in ratios[:blocks]:
        overlapping = 2 if ratio == CHOOSING else 1
        weights += 2 * overlapping * hidden * head * bool(ratio)
        if ratio == CHOOSING:
            weights += query_rank * index_heads * index + hidden * index_heads + 2 * overlapping * hidden * index
    return weights, {
        "attention.head_count": heads,
        "attention.head_count_kv": 1,
        "attention.key_length": head,
        "attention.value_length": head,
        "attention.sliding_window": its.number("sliding_window"),
        "attention.indexer.head_count": index_heads,
        "attention.indexer.key_length": index,
        "attention.compress_ratios": ratios[:blocks],
    }
