"""How a `config.json` says that its weights are stored: one quantization, or MLX's bits module by module.

Source: ml-explore/mlx-lm mlx_lm/utils.py (quantize_model, load_model), whose `quantization` has the bits of all
modules, and beside them a module's own; huggingface/transformers, quantizers.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flashmoe_sim.geometry.families import GATE_UP
from flashmoe_sim.geometry.mixes import MLX, Recipe
from flashmoe_sim.geometry.named import NamedModel
from flashmoe_sim.geometry.tensors import OTHER, outside
from flashmoe_sim.io.errors import Malformed, shown

MIXED, MLX_MIXED = "mixed", "mlx-mixed"
_AS_PUBLISHED = "give the config.json as it was published, or @SIZE behind its path"
_BITS, _GROUPS = (2, 3, 4, 5, 6, 8), (16, 32, 64, 128)
_MODES = {"mxfp4": 4.25, "nvfp4": 4.5, "mxfp8": 8.25}  # bits of a weight with its scales
_PLAIN = 16.0  # of a module that is not quantized
_MOST_BITS, _MOST_GROUP = 16, 2**16
_IN_LAYER = re.compile(r"(?:.*\.)?(?:layers|blocks|h)\.(\d{1,5})\.(.+)")
_NOT_COUNTED = re.compile(r"vision|visual|image|audio|multi_modal|projector|mtp|nextn|draft|eagle")
_ROUTER = re.compile(r"(?:.*\.)?(?:gate|router|shared_expert_gate|e_score\w*)(?:\.(?:proj|wg|linear|layer|weight))?")
_EXPERTS = re.compile(r"(?:.*\.)?(?:switch_\w+|(?<!shared_)experts)(?:\.\d+)?\.(\w+)")
_SHARED = re.compile(r"(?:.*\.)?shared_\w+\.(\w+)")
_DENSE = re.compile(r"(?:.*\.)?(?:mlp|feed_forward|ffn)\.(\w+)")
_NETWORK = {
    **dict.fromkeys(("gate_proj", "w1", "gate"), ("gate",)),
    **dict.fromkeys(("up_proj", "w3", "up", "fc1"), ("up",)),
    **dict.fromkeys(("down_proj", "w2", "down", "fc2"), ("down",)),
    **dict.fromkeys(("gate_up_proj", "w13", "gate_up"), ("gate", "up")),
}
_ATTENTION = {
    "q_proj": ("attn_q",),
    "k_proj": ("attn_k",),
    "v_proj": ("attn_v",),
    "qkv_proj": ("attn_q", "attn_k", "attn_v"),
    "o_proj": ("attn_output",),
    "g_proj": ("attn_gate",),
    "gate_proj": ("attn_gate",),
    "in_proj_qkv": ("attn_qkv",),
    "in_proj_z": ("attn_gate",),
    "in_proj_qkvz": ("attn_qkv", "attn_gate"),
    "in_proj_a": ("ssm_alpha",),
    "in_proj_b": ("ssm_beta",),
    "in_proj_ba": ("ssm_alpha", "ssm_beta"),
    "in_proj": ("ssm_in", "shortconv.in_proj"),
    "out_proj": ("attn_output", "ssm_out", "shortconv.out_proj"),
    "q_a_proj": ("attn_q_a",),
    "q_b_proj": ("attn_q_b",),
    "kv_a_proj_with_mqa": ("attn_kv_a_mqa",),
    "kv_b_proj": ("attn_k_b", "attn_v_b"),
    "embed_q": ("attn_k_b",),
    "unembed_out": ("attn_v_b",),
}
_ENDS = {
    **dict.fromkeys(("embed_tokens", "wte", "embeddings", "word_embeddings", "embedding"), "token_embd"),
    **dict.fromkeys(("lm_head", "output"), "output"),
}


@dataclass(frozen=True)
class Stored:
    """How weights are stored.

    name: of the quantization; empty for plain weights. recipe: of bits that differ by module; None if the name says
    all. unknown: a module whose bits differ, and whose size is not known here.
    """

    name: str = ""
    recipe: Recipe | None = None
    unknown: str = ""


def stored_as(
    document: Mapping[str, Any], text: Mapping[str, Any], beside: Mapping[str, Any], entry: NamedModel, where: str
) -> Stored:
    """How a config says its weights are stored.

    text: the language model's part of the document. beside: what a file beside the config says; empty without one.
    Raises Malformed for values that no program writes.
    """
    mlx = _object(document, text, "quantization", where=where)
    of = _object(document, text, "quantization_config", "compression_config", where=where)
    if not mlx and "quant_method" not in of and {"bits", "group_size"} <= set(of):
        mlx = of
    if mlx:
        return _of_mlx(mlx, entry, where)
    found = _of_others(of or beside, text, where)
    if of and not found:
        raise _wrong(where, "quantization_config", dict(of), "a quant_method")
    return Stored(found)


def _object(*texts: Any, where: str) -> Mapping[str, Any]:
    """The first of some fields that has a value, in either of two objects."""
    document, text, *names = texts
    for name in names:
        for one in (document, text):
            value = one.get(name)
            if value is not None and not isinstance(value, dict):
                raise _wrong(where, name, value, "an object")
            if value:
                return dict(value)
    return {}


def _of_mlx(of: Mapping[str, Any], entry: NamedModel, where: str) -> Stored:
    own = {path: value for path, value in of.items() if isinstance(value, dict | bool) or "." in path}
    if of.get("bits") is None and of.get("mode") is None:
        if own:
            return Stored(MLX_MIXED, unknown=min(own))
        raise _wrong(where, "quantization", dict(of), "the bits of a weight")
    mode = of.get("mode") or "affine"
    if not isinstance(mode, str) or len(mode) > _MOST_BITS:
        raise _wrong(where, "quantization.mode", mode, f"affine, {', '.join(_MODES)}")
    if mode not in ("affine", *_MODES):
        return Stored(f"mlx-{mode}")
    bits = _rate(of, {}, "quantization", where)
    name = f"mlx-{mode}"
    if mode == "affine":
        group = of.get("group_size", 64)
        name = f"mlx-{of['bits']}bit" + ("" if group == 64 else f"-g{group}")
    found = _Modules(entry, bits)
    for path, value in own.items():
        if not isinstance(value, dict | bool):
            raise _wrong(where, f"quantization of {path[:60]}", value, "an object with bits")
        its = _PLAIN if value is False else bits if value is True else _rate(value, of, path, where)
        if not found.add(path, its):
            return Stored(MLX_MIXED, unknown=path)
    if odd := found.odd or found.unknown_attention():
        return Stored(MLX_MIXED, unknown=odd)
    if not found.types:
        return Stored(name)
    types = {"experts": f"{bits:g}b", "rest": f"{bits:g}b", **found.named()}
    return Stored(MLX_MIXED, Recipe(types=types, format=MLX, float_bytes=2, vision=True, basis=""))


def _rate(of: Mapping[str, Any], general: Mapping[str, Any], path: str, where: str) -> float:
    """Bits of a weight with its scales. general: the bits of all modules, for what a module does not say."""
    mode = of.get("mode") or ("affine" if of.get("bits") is not None else general.get("mode") or "affine")
    if isinstance(mode, str) and mode in _MODES:
        return _MODES[mode]
    bits = of.get("bits", general.get("bits"))
    group = of.get("group_size")
    if group is None:
        group = general.get("group_size", 64) if (general.get("mode") or "affine") == "affine" else 64
    if mode != "affine" or type(bits) is not int or bits not in _BITS:
        raise _wrong(where, f"{path[:60]}: bits", bits, f"one of {', '.join(map(str, _BITS))}")
    if type(group) is not int or group not in _GROUPS:
        raise _wrong(where, f"{path[:60]}: group_size", group, f"one of {', '.join(map(str, _GROUPS))}")
    return bits + 32 / group


@dataclass
class _Modules:
    """The bits of the modules that have their own, by the names of the matrices."""

    entry: NamedModel
    general: float
    types: dict[str, float] = field(default_factory=dict)
    odd: str = ""  # a module of several with other bits than the first
    _strange: dict[float, list[str]] = field(default_factory=lambda: defaultdict(list))

    def add(self, path: str, bits: float) -> bool:
        """Take the bits of a module. False if it is not known which matrices it stands for."""
        if _NOT_COUNTED.search(path) or path.rpartition(".")[2].endswith(("norm", "conv1d")):
            return True
        inside = _IN_LAYER.fullmatch(path)
        if inside is None:
            end = _ENDS.get(path.rpartition(".")[2], "")
            if end:
                self._set(end, bits, path)
            return bool(end)
        layer, module = int(inside[1]), inside[2]
        if _ROUTER.fullmatch(module):
            return True
        if names := self._matrices(module):
            for name in names:
                self._set(f"{name}.{layer}", bits, path)
            return True
        if re.match(r"(?:\w*att\w*|mixer|mamba\w*|\w*conv\w*|linear_\w+|indexer)\.", module):
            self._strange[bits].append(path)
            return True
        return bits == self.general

    def _matrices(self, module: str) -> tuple[str, ...]:
        last = module.rpartition(".")[2]
        for pattern, end in ((_EXPERTS, "_exps"), (_SHARED, "_shexp"), (_DENSE, "")):
            if found := pattern.fullmatch(module):
                return tuple(f"ffn_{part}{end}" for part in _NETWORK.get(found[1], ()))
        return _ATTENTION.get(last, ()) if "." in module else ()

    def _set(self, name: str, bits: float, path: str) -> None:
        if self.types.setdefault(name, bits) != bits:
            self.odd = path

    def unknown_attention(self) -> str:
        """A module of a model's attention whose matrices are not known, if some have other bits; else empty.

        If each layer has one, and all have the same bits, these are the bits of all that the dimensions do not explain.
        """
        others = [path for bits, paths in self._strange.items() if bits != self.general for path in paths]
        if not others or all(tensor.name != OTHER for tensor in outside(self.entry)):
            return ""
        if len(self._strange) == 1 and len(others) >= self.entry.blocks:
            self.types[OTHER] = next(iter(self._strange))
            return ""
        return others[0]

    def named(self) -> dict[str, str]:
        """The type of each matrix; of gate and up in one, the mean of both."""
        types = dict(self.types)
        for name in types if self.entry.fused else ():
            if (part := name.partition(".")) and part[0] in ("ffn_gate_exps", "ffn_up_exps"):
                both = [self.types.get(f"{one}.{part[2]}", self.general) for one in ("ffn_gate_exps", "ffn_up_exps")]
                types = {**types, f"{GATE_UP}.{part[2]}": sum(both) / 2}
        return {name: f"{bits:g}b" for name, bits in types.items()}


def _of_others(of: Mapping[str, Any], text: Mapping[str, Any], where: str) -> str:
    """The plain name of a quantization of other programs; empty for plain weights."""
    if not of:
        return ""
    method = str(of.get("quant_method") or "").lower()[:40]
    if (algorithms := _algorithms(of, where)) and "nvfp4" in algorithms:
        return "nvfp4"
    if "mxfp4" in method or text.get("expert_dtype") == "fp4":
        return "mxfp4"
    if algorithms:
        return algorithms[0]
    if method in ("exl2", "exl3"):
        return f"{method}-{_bits(of, where, whole=False):g}bpw"
    if method.startswith("bitsandbytes"):
        return "bnb-8bit" if of.get("load_in_8bit") else "bnb-4bit"
    if method in ("gptq", "auto-round", "intel/auto-round", "awq"):
        bits = _bits(of, where)
        if _own_bits(of, bits):
            return MIXED
        group = of.get("group_size", 128)
        if type(group) is not int or not (group == -1 or 0 < group <= _MOST_GROUP):
            raise _wrong(where, "quantization_config.group_size", group, f"a number from 1 to {_MOST_GROUP}")
        name = {"gptq": f"gptq-int{bits}", "awq": f"awq-{bits}bit"}.get(method, f"autoround-{bits}bit")
        return name + ("" if group in (-1, 128) else f"-g{group}")
    if method == "quark":
        of_weights = _table(of.get("global_quant_config")).get("weight")
        first = of_weights[0] if isinstance(of_weights, list) and of_weights else of_weights
        kind = str(_table(first).get("dtype") or method).lower()[:40]
        return {"fp4": "mxfp4", "fp8_e4m3": "fp8"}.get(kind, kind)
    return "fp8" if "fp8" in method else method


def _bits(of: Mapping[str, Any], where: str, *, whole: bool = True) -> float | int:
    bits = of.get("bits", 4)
    if type(bits) not in ((int,) if whole else (int, float)) or not 1 <= bits <= _MOST_BITS:
        raise _wrong(where, "quantization_config.bits", bits, f"a number from 1 to {_MOST_BITS}")
    return bits  # type: ignore[no-any-return]


def _own_bits(of: Mapping[str, Any], bits: float) -> bool:
    """Whether routed experts, or modules by a pattern, have bits of their own."""
    own = [(name, one) for key in ("extra_config", "dynamic") for name, one in _table(of.get(key)).items()]
    return any(
        isinstance(one, dict) and one.get("bits", bits) != bits and ("experts" in name or "layers" not in name)
        for name, one in own
        if "shared_expert" not in name and "lm_head" not in name
    )


def _table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _algorithms(of: Mapping[str, Any], where: str) -> list[str]:
    """What ModelOpt and compressed-tensors say of the weights: nvfp4, mxfp4, fp8, int4."""
    said = [of.get("quant_algo"), of.get("moe_quant_algo"), of.get("format")]
    said += [_table(one).get("quant_algo") for one in _table(of.get("quantized_layers")).values()]
    words = " ".join(str(one).lower() for one in said if one)
    found = [name for name in ("nvfp4", "mxfp4", "mxfp8", "w4a16", "w4a8") if name in words]
    if found:
        return found
    kinds = dict.fromkeys(
        _kind(weights, where)
        for one in _table(of.get("config_groups")).values()
        if (weights := _table(_table(one).get("weights"))) and weights.get("num_bits") is not None
    )
    if kinds:
        return [MIXED] if len(kinds) > 1 else [*kinds]
    return ["fp8"] if "fp8" in words else []


def _kind(weights: Mapping[str, Any], where: str) -> str:
    """A group of compressed-tensors as a plain name: int4-g32."""
    bits, group = weights["num_bits"], weights.get("group_size")
    if type(bits) is not int or not 1 <= bits <= _MOST_BITS:
        raise _wrong(where, "num_bits", bits, f"a number from 1 to {_MOST_BITS}")
    if group is not None and (type(group) is not int or not (group == -1 or 0 < group <= _MOST_GROUP)):
        raise _wrong(where, "group_size", group, f"a number from 1 to {_MOST_GROUP}")
    if weights.get("type") == "float":
        return f"fp{bits}"
    return f"int{bits}" + (f"-g{group}" if group not in (None, 128, -1) else "")


def _wrong(where: str, what: str, found: object, expected: str) -> Malformed:
    return Malformed(f"{what} is {shown(found)}; expected {expected}", where=where, advice=_AS_PUBLISHED)
