"""What the name of a quantization says: the storage type of each kind of matrix.

A name gives a mix of llama.cpp (geometry/quantizer.py), a recipe of a series of files (recipes.toml), types of
ik_llama.cpp, or bits for every weight, as other formats have them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from typing import Any

from flashmoe_sim.geometry.quantizer import MIXES, UNMIXED, more_bits

GGUF, MLX, SAFETENSORS, EXL3 = "gguf", "mlx", "safetensors", "exl3"
OF_IK = "gguf-ik"  # GGUF files with types that ik_llama.cpp alone reads
UNSLOTH, BARTOWSKI, UBERGARM = "unsloth", "bartowski", "ubergarm"
NATIVE_MXFP4 = frozenset({"gpt-oss"})  # routed experts stay as they were trained, whatever a file is called
BF16_SAFETENSORS = "bf16-safetensors"  # of models whose experts keep four bits in a GGUF file of that name
REQUANTIZING = frozenset({"davidau"})  # who quantizes them again
NATIVE = {"deepseek2": "fp8", "deepseek32": "fp8", "gpt-oss": "mxfp4", "deepseek4": "mxfp4", "deepseek_v41": "mxfp4"}
FUSED = frozenset({"gemma4"})
_KIMI_IN_4_BITS = re.compile(r"kimi-k2(-thinking|\.\d)")
# The bases of estimated bytes.
RULE = "the types follow llama.cpp's quantizer; files published with another mix differ"
SERIES = (
    "the types are inferred from published sizes of this series, most of them within 3%; which layers have more bits "
    "is a guess"
)
CUSTOM = (
    "a mix that publishers choose anew for each model: these types are the usual ones, and files differ by 5% and more"
)
FORMAT = (
    "bits and scales of the format; which weights outside the experts are left in 16 bits differs between publishers"
)
# A type of ik_llama.cpp's, and the type that its files usually have for `down` (ubergarm's recipes).
_IK = {
    "q6_0": "Q6_0", "iq1_s_r4": "IQ1_S_R4", "iq1_m_r4": "IQ1_M_R4", "iq1_kt": "IQ2_KT", "iq2_kt": "IQ3_KT",
    "iq3_kt": "IQ4_KT", "iq4_kt": "IQ4_KT", "iq2_ks": "IQ3_KS", "iq3_ks": "IQ3_KS", "iq4_ks": "IQ5_KS",
    "iq5_ks": "IQ5_KS", "iq4_kss": "IQ4_KSS", "iq2_kl": "IQ3_KS", "iq2_k": "IQ3_K", "iq3_k": "IQ4_K",
    "iq4_k": "IQ4_K", "iq5_k": "IQ6_K", "iq6_k": "IQ6_K",
}  # fmt: skip
_LARGER = {"iq4_k": "IQ5_K", "iq3_ks": "IQ4_KS", "iq4_kss": "IQ4_KS"}  # of ubergarm alone
# Names that say more of embedding and output: the mix, and their type.
_WITH_EIGHT_BITS = {
    "q2_k_l": ("q2_k", "Q8_0"), "q3_k_xl": ("q3_k_l", "Q8_0"), "q4_k_l": ("q4_k_m", "Q8_0"),
    "q5_k_l": ("q5_k_m", "Q8_0"), "q6_k_l": ("q6_k", "Q8_0"), "q8_0_l": ("q8_0", "F16"),
}  # fmt: skip
_SAME = {"q2_k_m": "q2_k", "q3_k": "q3_k_m", "q4_k": "q4_k_m", "q5_k": "q5_k_m", "fp16": "f16", "fp32": "f32"}
_SAME |= dict.fromkeys(("q4_0_4_4", "q4_0_4_8", "q4_0_8_8"), "q4_0")  # rows interleaved for ARM, in as many bytes
_SAME |= {"w8a8": "int8"}


_KINDS = {"token_embd": "embedding", "output": "output", "per_layer_token_embd": "table"}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The types of a quantization.

    mix: llama.cpp's, for what `types` does not name; empty if it names all. types: by the name of a tensor with its
    layer (`attn_q.3`) or without, its kind, or `experts` and `rest`; a type is ggml's, or a number of bits such as
    `4.5b`. float_bytes: of a weight that is never quantized. vision: whether the files hold the model's vision tower.
    bits: of a weight in the mean, if the name says so; 0 if not. basis: of estimated bytes.
    """

    mix: str = ""
    types: Mapping[str, str] = field(default_factory=dict)
    format: str = GGUF
    float_bytes: int = 4
    vision: bool = False
    bits: float = 0.0
    basis: str = RULE

    def type_of(self, name: str, layer: int, layers: int) -> str:
        """The type that it names for a tensor, or empty if its mix decides."""
        kind = kind_of(name)
        if kind == "table" and self.mix:
            return _table_type(self.mix)
        for key in (f"{name}.{layer}", name, kind, "experts" if kind in ("gate_up", "down") else "rest"):
            if key in self.types:
                return _chosen(self.types[key], layer, layers)
        return ""


def kind_of(name: str) -> str:
    """The kind of a tensor, as recipes name it."""
    if name in _KINDS:
        return _KINDS[name]
    if name.endswith("_exps"):
        return "down" if "down" in name else "gate_up"
    if name.endswith("_shexp"):
        return "shared"
    return "dense" if name.startswith("ffn_") else "attention"


def _table_type(mix: str) -> str:
    """Of a table of which a token reads a few rows: five bits and more, as in Unsloth's files of Qwen3.8-Flash-Next."""
    plain = MIXES[mix]
    return plain if plain in UNMIXED or plain == "Q8_0" else "Q5_K"


def tidy(text: str) -> str:
    """The usual spelling of a quantization's name: `UD_Q4_XL` is `ud-q4_k_xl`, `i1-IQ1_M` is `iq1_m`."""
    name = re.sub(r"[\s.]*(?<!\d)[\s.]+|\s+", "-", text.strip().lower())
    name = re.sub(r"^(i1|imat|imatrix)[-_]", "", name)
    name = re.sub(r"^ud[-_]", "ud-", name)
    name = re.sub(r"^ud-q(\d)_(xl|[sml])$", r"ud-q\1_k_\2", name)
    name = re.sub(r"^(q[24568]_k|iq4_nl)_xl$", r"ud-\1_xl", name)
    name = re.sub(r"^apex-(i-)?", "apex-", name)
    name = re.sub(r"^(?:mlx-)?(\d)-?bit(?:-mlx)?(?=$|-)", r"mlx-\1bit", name)
    name = re.sub(r"-gs(\d+)$", r"-g\1", name)
    name = re.sub(r"^mlx-(mxfp4-q\d)$", r"\1", name)
    name = re.sub(r"^(awq|gptq|autoround)(?:-?(?:w|int)?(\d)?(?:bit|a16)?)?(?:-(\d+)g|-g(\d+))?$", _of_method, name)
    return _SAME.get(name, name)


def _of_method(found: re.Match[str]) -> str:
    group = found[3] or found[4] or "128"
    return f"{found[1]}-{found[2] or 4}bit" + ("" if group == "128" else f"-g{group}")


def meant_by(quant: str, arch: str, asked: str) -> str:
    """The quantization that a tidy name means of a model: `native` is the one that its authors publish."""
    if quant == "native":
        return "int4" if _KIMI_IN_4_BITS.match(asked.rpartition("/")[2].lower()) else NATIVE.get(arch, "bf16")
    return "mxfp4_moe" if quant == "mxfp4" and NATIVE.get(arch) != quant else quant


def recipe_of(quant: str, *, arch: str, asked: str, uploader: str = "") -> Recipe | None:
    """The recipe of a quantization of a model; None if there is none.

    arch: the model's architecture. asked: its name, as somebody wrote it, which says of which year its files are.
    """
    asked = asked.rpartition("/")[2].lower()
    written = quant
    if quant not in _IK:
        quant = _repacked(quant)
    mix, ends = _WITH_EIGHT_BITS.get(quant, (quant, ""))
    found = of_series(mix, arch=arch, asked=asked, uploader=uploader) or _of_mix(mix)
    found = found or _of_apex(quant, arch) or _of_ik(quant, uploader) or _of_bits(quant, arch, asked, uploader)
    found = found or _of_format(quant, asked)
    if found is None and quant.startswith("ud-") and (plain := _of_mix(quant.removeprefix("ud-"))):
        found = replace(plain, basis=CUSTOM)
    if found is None:
        return None
    types = {**found.types, **({"embedding": ends, "output": ends} if ends else {})}
    if found.format == GGUF and arch in NATIVE_MXFP4 and not found.bits and uploader not in REQUANTIZING:
        types |= {"gate_up": "MXFP4", "down": "MXFP4"}
    if found.format == MLX and NATIVE.get(arch) == "mxfp4" and re.match(r"mlx-[4568]bit", quant):
        types |= {"down": "4.25b", "experts": "4.25b"}
    ik = found.format == GGUF and (quant != written or quant.removeprefix("smol-") in _IK)
    return replace(found, types=types, format=OF_IK if ik else found.format)


def of_series(quant: str, *, arch: str, asked: str, uploader: str = "") -> Recipe | None:
    """The recipe of a model's own files or of a publisher's series; None if it has none of its own."""
    tables = _tables()
    asked = asked.removesuffix("-gguf")
    for name, recipes in tables["models"].items():
        if quant in recipes and (name == asked or name.startswith(f"{asked}-")):
            return _recipe(recipes, quant)
    uploader = UNSLOTH if quant.startswith("ud-") else uploader
    later = any(re.search(part, asked) for part in tables["later"].get(uploader, ()))
    series = [f"{uploader}-{arch}", *([f"{uploader}-later"] if later else []), uploader] if uploader else []
    if uploader == UNSLOTH and not later:
        series.remove(f"{uploader}-{arch}")
    for name in (*series, f"any-{arch}", "any"):
        if quant in tables.get(name, {}):
            return _recipe(tables[name], quant)
    return None


def _recipe(series: Mapping[str, Any], quant: str) -> Recipe:
    table = dict(series[quant])
    if "same" in table:
        return _recipe(series, table["same"])
    return Recipe(mix=table.pop("mix"), types=table, basis=SERIES)


def _of_mix(quant: str) -> Recipe | None:
    if quant == "nvfp4" or quant not in MIXES:
        return None
    return Recipe(mix=quant, basis="" if quant in UNMIXED or quant == "q8_0" else RULE)


def _of_apex(quant: str, arch: str) -> Recipe | None:
    """mudler's profiles; their patterns miss gate and up in one tensor, which has the type of the mix."""
    name = quant.removeprefix("apex-")
    table = _tables()["apex"]
    if name == quant or name not in table:
        return None
    found = _recipe(table, name)
    if arch in FUSED:
        found = replace(found, types={key: value for key, value in found.types.items() if key != "gate_up"})
    return found


def _repacked(quant: str) -> str:
    """The quantization whose rows a file of ik_llama.cpp interleaves, in as many bytes."""
    name = re.sub(r"_r(4|8|16)$", "", quant)
    return _SAME.get(name, name)


def _of_ik(quant: str, uploader: str) -> Recipe | None:
    name = quant.removeprefix("smol-")
    if name not in _IK:
        return None
    plain = name.upper()
    larger = _LARGER.get(name, _IK[name]) if uploader == UBERGARM else _IK[name]
    down = plain if quant.startswith("smol-") else larger
    return Recipe(mix="q8_0", types={"gate_up": plain, "down": down}, basis=CUSTOM)


def _of_bits(quant: str, arch: str, asked: str, uploader: str) -> Recipe | None:
    """A file whose name says how many bits a weight has in the mean: `iq3_s-2.69bpw`."""
    found = re.fullmatch(r"(.+?)-(\d+\.?\d*)bpw", quant)
    base = recipe_of(found[1], arch=arch, asked=asked, uploader=uploader) if found and found[1] in MIXES else None
    return replace(base, bits=float(found[2]), basis=CUSTOM) if found and base else None


def _of_format(quant: str, asked: str) -> Recipe | None:
    """Quantizations of other formats: bits of the experts, and of the rest."""
    if found := re.fullmatch(r"exl[23]-(\d+\.?\d*)bpw(?:-h(\d))?", quant):
        types = {"embedding": "F16", "output": f"{found[2] or 6}b", "experts": f"{found[1]}b", "rest": f"{found[1]}b"}
        return Recipe(types=types, format=EXL3, float_bytes=2, basis=FORMAT)
    if quant.startswith("mlx-") or quant in ("mxfp4-q8", "mxfp4-q4"):
        return _of_mlx(quant.removeprefix("mlx-"))
    kept = {"embedding": "BF16", "output": "BF16"}
    if found := re.fullmatch(r"(?:(?:awq|gptq|autoround)-(\d)bit|w(\d)a16|int(\d)(?!-g32))(?:-g(\d+))?", quant):
        bits = int(found[1] or found[2] or found[3])
        if _KIMI_IN_4_BITS.match(asked) and quant == "int4":
            return _of_format("int4-g32", asked)
        grouped = f"{bits + (16 + bits) / int(found[4] or 128):g}b"
        return Recipe(types={"experts": grouped, "rest": grouped, **kept}, **_in_safetensors())
    others = {
        "int4-g32": {"experts": "4.5b", "rest": "BF16"},
        BF16_SAFETENSORS: {"experts": "BF16", "rest": "BF16"},
        "bnb-4bit": {"experts": "4.13b", "rest": "4.13b", **kept},  # scales of 64 weights, in 8 bits
        "mxfp8": {"experts": "8.25b", "rest": "BF16"},
        "fp8": {"experts": "8b", "rest": "8b", **kept},
        "nvfp4": {"experts": "4.5b", "rest": "BF16"},
        "mxfp4": {"experts": "4.25b", "rest": "BF16"},
    }
    return Recipe(types=others[quant], **_in_safetensors()) if quant in others else None


def _in_safetensors() -> dict[str, Any]:
    return {"format": SAFETENSORS, "float_bytes": 2, "vision": True, "basis": FORMAT}


def _of_mlx(name: str) -> Recipe | None:
    """MLX's groups of weights with a 16-bit scale and a 16-bit bias, or its own kinds of 4 bits."""
    bits: dict[str, float] = {"bf16": 16, "fp16": 16, "f16": 16, "mxfp4": 4.25, "nvfp4": 4.5, "mxfp8": 8.25}
    rest, down = 0.0, 0.0
    if found := re.fullmatch(r"mxfp4-q(\d)", name):
        experts, rest = 4.25, int(found[1]) + 0.5
    elif found := re.fullmatch(r"dq(\d)(?:plus|_k_[sml])?(?:-q(\d))?", name):
        experts, rest = int(found[1]) + 0.5, int(found[2] or 8) + 0.5
        down = experts + 1
    elif found := re.fullmatch(r"(\d)bit-dq", name):
        experts, rest = int(found[1]) + 0.5, 8.5
    elif found := re.fullmatch(r"oq([234568])(?:\.\d)?e?|([234568])bit(?:-g(32|64|128))?", name):
        experts = int(found[1] or found[2]) + 32 / int(found[3] or 64)
    elif name in bits:
        experts = bits[name]
    else:
        return None
    types = {"down": f"{down or experts:g}b", "experts": f"{experts:g}b", "rest": f"{rest or experts:g}b"}
    exact = not down and not name.startswith("oq")
    return Recipe(types=types, format=MLX, float_bytes=2, vision=True, basis="" if exact else CUSTOM)


def _chosen(text: str, layer: int, layers: int) -> str:
    """The type of a layer, of a text such as `IQ2_XS | IQ3_XXS 20% | Q4_K 5`."""
    found, *others = text.split(" | ")
    for other in others:
        type_name, where = other.split()
        if _is_there(where, layer, layers):
            found = type_name
    return found


def _is_there(where: str, layer: int, layers: int) -> bool:
    if where == "more":
        return more_bits(layer, layers)
    if where == "first":
        return layer < layers // 8
    at_ends = round(layers * float(where[:-1]) / 100) if where.endswith("%") else 2 * int(where)
    return layer < at_ends // 2 or layer >= layers - (at_ends - at_ends // 2)


@cache
def _tables() -> Mapping[str, Any]:
    return tomllib.loads(resources.files("flashmoe_sim.geometry").joinpath("recipes.toml").read_text("utf-8"))
