"""The storage type that llama.cpp's quantizer gives each matrix of a model in a named mix.

Source: ggml-org/llama.cpp src/llama-quant.cpp@007dbbf3 (llama_tensor_get_type_impl, tensor_type_fallback), for files
with an importance matrix, as people publish them.
"""

from __future__ import annotations

from dataclasses import dataclass

# A mix, and the type of every tensor that its rules do not name.
MIXES = {
    "f32": "F32",
    "f16": "F16",
    "bf16": "BF16",
    "q1_0": "Q1_0",
    "q2_0": "Q2_0",
    "q4_0": "Q4_0",
    "q4_1": "Q4_1",
    "q5_0": "Q5_0",
    "q5_1": "Q5_1",
    "q8_0": "Q8_0",
    "q2_k": "Q2_K",
    "q2_k_s": "Q2_K",
    "q3_k_s": "Q3_K",
    "q3_k_m": "Q3_K",
    "q3_k_l": "Q3_K",
    "q4_k_s": "Q4_K",
    "q4_k_m": "Q4_K",
    "q5_k_s": "Q5_K",
    "q5_k_m": "Q5_K",
    "q6_k": "Q6_K",
    "iq1_s": "IQ1_S",
    "iq1_m": "IQ1_M",
    "iq2_xxs": "IQ2_XXS",
    "iq2_xs": "IQ2_XS",
    "iq2_s": "IQ2_XS",
    "iq2_m": "IQ2_S",
    "iq3_xxs": "IQ3_XXS",
    "iq3_xs": "IQ3_S",
    "iq3_s": "IQ3_S",
    "iq3_m": "IQ3_S",
    "iq4_xs": "IQ4_XS",
    "iq4_nl": "IQ4_NL",
    "tq1_0": "TQ1_0",
    "tq2_0": "TQ2_0",
    "mxfp4_moe": "Q8_0",
    "nvfp4": "NVFP4",
}
UNMIXED = frozenset({"F32", "F16", "BF16"})
# What takes the place of a type if a row is not a whole number of its blocks.
FALLBACK = {
    **dict.fromkeys(("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_XS"), "IQ4_NL"),
    **dict.fromkeys(("Q2_0", "Q2_K", "Q3_K", "TQ1_0", "TQ2_0"), "Q4_0"),
    "Q4_K": "Q5_0",
    "Q5_K": "Q5_1",
    "Q6_K": "Q8_0",
    # ik_llama.cpp's types (src/llama-quantize.cpp there)
    **dict.fromkeys(("IQ1_KT", "IQ2_KT", "IQ3_KT", "IQ4_KT", "IQ2_K", "IQ2_KS", "IQ2_KL", "IQ3_K", "IQ3_KS"), "IQ4_NL"),
    **dict.fromkeys(("IQ4_KS", "IQ4_KSS"), "IQ4_NL"),
    "IQ4_K": "Q5_0",
    "IQ5_K": "Q6_0",
    "IQ5_KS": "Q6_0",
    "IQ6_K": "Q8_0",
}
_SMALL = frozenset({"iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq2_m"})
_VALUES = frozenset({"attn_v", "attn_qkv", "attn_kv_b"})
_FIVE_BIT_OUTPUT = _SMALL | {"iq3_xxs"}
_EIGHT_EXPERTS = 8
_MANY = 4  # query heads for one KV head, or experts


@dataclass(frozen=True)
class OfMix:
    """What the rules ask about a model.

    shared_queries: query heads for one KV head. values: its layers with a matrix for values. networks: the matrices
    `down` of each layer, routed and shared experts counted once each.
    """

    layers: int
    experts: int
    shared_queries: float
    tied: bool
    values: tuple[int, ...]
    networks: tuple[int, ...]


def more_bits(number: int, layers: int) -> bool:
    """Whether a mix uses more bits for the matrices of layer `number` of `layers` that matter more.

    They are the first eighth, the last eighth, and every third layer between.
    """
    return number < layers // 8 or number >= 7 * layers // 8 or (number - layers // 8) % 3 == 2


def type_of(mix: str, name: str, layer: int, facts: OfMix) -> str:
    """The type of a matrix with a tensor's name in a mix, before any fallback."""
    plain = MIXES[mix]
    if plain in UNMIXED:
        return plain
    if name == "output" or (name == "token_embd" and facts.tied):
        return _output(mix, plain)
    if mix == "mxfp4_moe":
        return "MXFP4" if name.endswith("_exps") else plain
    if name == "token_embd":
        return _embedding(mix, plain)
    if mix in _SMALL:
        return _small(mix, plain, name, layer, facts)
    if name in _VALUES:
        return _value(mix, plain, layer, facts)
    if name in ("attn_k", "attn_q"):
        if facts.experts == _EIGHT_EXPERTS and name == "attn_k":
            return "Q8_0"
        return {"iq3_xs": "IQ3_XXS", "iq3_xxs": "IQ2_S"}.get(mix, plain)
    if name.startswith("ffn_down"):
        return _down(mix, plain, layer, facts)
    if name == "attn_output":
        return _attention_output(mix, plain, facts)
    if name.startswith("ffn_") and mix == "iq3_xs" and facts.layers // 8 <= layer < 7 * facts.layers // 8:
        return "IQ3_XXS"
    return plain


def _output(mix: str, plain: str) -> str:
    if plain == "Q8_0" or mix == "mxfp4_moe":
        return "Q8_0"
    return "Q5_K" if mix in _FIVE_BIT_OUTPUT else "Q6_K"


def _embedding(mix: str, plain: str) -> str:
    if mix in ("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs"):
        return "Q2_K"
    if mix in ("iq2_s", "iq2_m", "iq3_xxs"):
        return "IQ3_S"
    return "Q4_K" if mix in ("tq1_0", "tq2_0", "q2_0") else plain


def _small(mix: str, plain: str, name: str, layer: int, facts: OfMix) -> str:
    larger = "IQ3_S" if mix in ("iq2_s", "iq2_m") else "Q2_K"
    if name in _VALUES:
        return "Q4_K" if max(facts.shared_queries, facts.experts) >= _MANY else larger
    if name == "attn_k" and facts.experts == _EIGHT_EXPERTS:
        return "Q4_K"
    if name.startswith("ffn_down"):
        return larger if sum(facts.networks[:layer]) < facts.layers // 8 else plain
    if name == "attn_output":
        if facts.experts == _EIGHT_EXPERTS:
            return "Q5_K"
        return {"iq1_s": "IQ2_XXS", "iq1_m": "IQ2_XXS", "iq2_s": "IQ3_S", "iq2_m": "IQ3_S"}.get(mix, plain)
    return plain


def _value(mix: str, plain: str, layer: int, facts: OfMix) -> str:
    index = sum(1 for other in facts.values if other < layer)
    many = facts.shared_queries >= _MANY
    found = plain
    if facts.experts == _EIGHT_EXPERTS:
        return "Q8_0"
    if mix == "q2_k":
        found = "Q4_K" if many else "Q3_K"
    elif (mix in ("q2_k_s", "iq3_xxs", "iq3_xs", "iq3_s") and many) or mix == "iq3_m":
        found = "Q4_K"
    elif mix == "q3_k_m":
        found = "Q5_K" if index < 2 else "Q4_K"
    elif mix == "q3_k_l" or (mix in ("iq4_nl", "iq4_xs") and many):
        found = "Q5_K"
    elif mix in ("q4_k_m", "q5_k_m") and more_bits(index, len(facts.values)):
        found = "Q6_K"
    elif mix == "q4_k_s" and index < 4:
        found = "Q5_K"
    return found


def _down(mix: str, plain: str, layer: int, facts: OfMix) -> str:
    first = layer < facts.layers // 8
    if mix in ("q4_k_m", "q5_k_m"):
        return "Q6_K" if more_bits(layer, facts.layers) else plain
    if mix == "q3_k_m":
        return "Q5_K" if layer < facts.layers // 16 else "Q4_K"
    if mix == "iq3_m":
        eight = facts.experts == _EIGHT_EXPERTS and more_bits(layer, facts.layers)
        return "Q4_K" if first or eight else plain
    always = {"q2_k": "Q3_K", "q3_k_l": "Q5_K"}
    early = {"q2_k_s": "Q4_K", "q4_k_s": "Q5_K", "q4_0": "Q4_1", "q5_0": "Q5_1"}
    return always.get(mix) or (early.get(mix, plain) if first else plain)


def _attention_output(mix: str, plain: str, facts: OfMix) -> str:
    if facts.experts == _EIGHT_EXPERTS:
        of_five = (
            "q2_k",
            "iq3_xs",
            "iq3_xxs",
            "q3_k_s",
            "q3_k_m",
            "iq4_nl",
            "q4_k_s",
            "q4_k_m",
            "iq3_s",
            "iq3_m",
            "iq4_xs",
        )
        return "Q5_K" if mix in of_five else plain
    changed = {"q2_k": "Q3_K", "iq3_xxs": "IQ3_S", "q3_k_m": "Q4_K", "q3_k_l": "Q5_K", "iq3_m": "Q4_K"}
    return changed.get(mix, plain)
