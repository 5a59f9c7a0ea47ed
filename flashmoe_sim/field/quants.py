"""How many bits a weight has in a quantization, by the name that people give it."""

from __future__ import annotations

import re

# Bits a weight of a whole file, which experts are most of. Source: llama.cpp, tools/quantize/README.md, the table of
# Llama-3.1-8B; of names that end in _XL: sizes of Unsloth's files over their weights (DeepSeek-R1 211.03 GiB,
# Qwen3-235B-A22B 124.91, Qwen3.5-35B-A3B 23.3 and 29.6). Of formats of experts: their blocks; W4A16 has a 16-bit scale
# for 128 weights (vllm-project/llm-compressor, preset schemes), AWQ, GPTQ and AutoRound a 4-bit zero point as well.
OF_A_FILE = {
    "iq1_s": 2.00,
    "iq1_m": 2.15,
    "iq2_xxs": 2.38,
    "iq2_xs": 2.59,
    "iq2_s": 2.74,
    "iq2_m": 2.93,
    "iq3_xxs": 3.25,
    "iq3_xs": 3.50,
    "iq3_s": 3.66,
    "iq3_m": 3.76,
    "iq4_xs": 4.46,
    "iq4_nl": 4.68,
    "q2_k_s": 2.97,
    "q2_k_xl": 2.70,
    "q2_k": 3.16,
    "q3_k_s": 3.64,
    "q3_k_m": 4.00,
    "q3_k_l": 4.30,
    "q3_k_xl": 3.70,
    "q4_0": 4.66,
    "q4_1": 5.12,
    "q4_k_s": 4.67,
    "q4_k_m": 4.89,
    "q4_k_xl": 4.60,
    "q4_k_l": 4.95,
    "q5_0": 5.59,
    "q5_k_s": 5.57,
    "q5_k_m": 5.70,
    "q5_k_xl": 5.77,
    "q6_k": 6.56,
    "q6_k_xl": 7.30,
    "q8_0": 8.50,
    "q8_k_xl": 9.00,
    "f16": 16.0,
    "bf16": 16.0,
    "fp16": 16.0,
    # formats of experts alone; source: their blocks
    "q4_k": 4.5,
    "mxfp4": 4.25,
    "nvfp4": 4.5,
    "fp4": 4.25,
    "fp8": 8.0,
    "int8": 8.0,
    "int4": 4.0,
    "w4a16": 4.125,
    "w8a8": 8.0,
    "w8a16": 8.125,
    "awq": 4.16,
    "gptq": 4.16,
    "autoround": 4.16,
    "q1_0": 1.125,
    "q2_0": 2.25,
    "tq1_0": 1.69,
    "tq2_0": 2.06,
    "iq1_kt": 1.75,
    "iq2_k": 2.38,
    "iq2_kl": 2.69,
    "iq2_ks": 2.19,
    "iq3_k": 3.44,
    "iq3_ks": 3.19,
    "iq4_k": 4.5,
    "iq4_ks": 4.25,
    "iq5_k": 5.5,
    "iq5_ks": 5.25,
    "iq6_k": 6.63,
}
# What people shorten: a word for a quantization of which there is one, or that tools take if only bits are asked for.
SHORT = {
    "q8": "q8_0",
    "q6": "q6_k",
    "q5": "q5_k_m",
    "q4": "q4_k_m",
    "q3": "q3_k_m",
    "q2": "q2_k",
    "q40": "q4_0",  # distributed-llama's
    "q80": "q8_0",
    "ud-q8": "ud-q8_k_xl",
    "ud-q6": "ud-q6_k_xl",
    "ud-q5": "ud-q5_k_xl",
    "ud-q4": "ud-q4_k_xl",
    "ud-q3": "ud-q3_k_xl",
    "ud-q2": "ud-q2_k_xl",
}
# Weights of these models are published in 4 bits: a quantization with more keeps them.
NATIVE_BITS = {
    "gpt-oss-20b": 4.25,
    "gpt-oss-120b": 4.25,
    "deepseek-v4-flash": 4.25,
    "deepseek-v4.1-flash": 4.25,
    "kimi-k3": 4.25,
}
MLX_BITS = (2, 3, 4, 5, 6, 8)
# Every expert has the same bytes in these, so what else a file has is outside the experts.
EXACT = (
    "bf16",
    "fp8",
    "q8_0",
    "int8",
    "int4",
    "int4-g64",
    "mxfp4",
    "nvfp4",
    "vq3r",
    "mxfp4-q4",
    "mxfp4-q8",
    *(f"mlx-{bits}bit" for bits in MLX_BITS),
)
GROUP_BITS = 0.5  # a 16-bit scale and a 16-bit bias for 64 weights
FOUR_BITS = re.compile(r"4[- ]?bits?", re.IGNORECASE)
UNTOLD = re.compile(r"\bnot (?:told|stated)\b", re.IGNORECASE)  # what a table says in the place of a quantization
_BPW = re.compile(r"(\d+(?:\.\d+)?) ?bpw", re.IGNORECASE)
_BITS = re.compile(r"\b(\d(?:\.\d+)?)[ -]?bits?\b", re.IGNORECASE)
_NAMES = sorted(OF_A_FILE, key=len, reverse=True)
_RECIPES = (
    (re.compile(r"^vq3r", re.IGNORECASE), "vq3r"),
    (re.compile(r"iq2_?xxs(?: ?/ ?|-w2)q2_?k|^q2(?:-imatrix|[-/]q4\b.*)?$|\biq2 experts\b", re.IGNORECASE), "ds4-q2"),
    (re.compile(r"^int4\b.*\bg(?:roup|s)? ?-?\d+", re.IGNORECASE), "int4-g64"),
    (re.compile(r"mxfp4-q4", re.IGNORECASE), "mxfp4-q4"),
    (re.compile(r"mxfp4-q8", re.IGNORECASE), "mxfp4-q8"),
    *((re.compile(rf"mlx.*\b{bits}-?bit|\b{bits}-?bit.*(?:mlx|affine)", re.I), f"mlx-{bits}bit") for bits in MLX_BITS),
    (re.compile(r"^(?:4-?bit|mlx)$", re.IGNORECASE), "mlx-4bit"),
    *((re.compile(rf"mlx.*\b{bits}-?bit|\b{bits}-?bit.*mlx", re.I), f"mxfp4-q{bits}") for bits in (4, 8)),
)


def quant_of(text: str, known: tuple[str, ...]) -> str | None:
    """The known quantization that a text names, such as `q4_k_m` in `UD-Q4_K_M (imatrix)`; None if it names none.

    A dynamic mix (`UD-`) is another quantization than the plain one unless only a name without `ud-` is known.
    """
    for pattern, name in _RECIPES:
        if pattern.search(text) and name in known:
            return name
    first = _first(text)
    if first in known:
        return first
    plain = first.removeprefix("ud-")
    if plain in known and not _BPW.search(text) and "custom" not in text.lower():
        return plain
    expert_format = "mxfp4" if first == "fp4" else first.partition("-")[0]
    return expert_format if expert_format in known else None


def _first(text: str) -> str:
    """The first word, in small letters; a shortened name in full, but not of `q2/q4 mixed`."""
    words = re.split(r"([ (,/])", text.strip().lower().removeprefix("gguf "), maxsplit=1)
    return words[0] if "/" in words[1:2] else SHORT.get(words[0], words[0])


def bits_of(text: str) -> float | None:
    """Bits of a weight in a quantization with this name; None if the text says nothing that is known."""
    if match := _BPW.search(text):
        return float(match[1])
    plain = re.sub(r"[ -]", "_", f"{_first(text)} {text.lower()}")
    for name in _NAMES:
        if re.search(rf"(?<![a-z0-9]){name}(?![a-z0-9])", plain.replace("ud_", "")) or re.search(
            rf"(?<![a-z0-9]){name}_r\d", plain
        ):
            return OF_A_FILE[name]
    if match := _BITS.search(text):
        return float(match[1]) + GROUP_BITS
    return None
