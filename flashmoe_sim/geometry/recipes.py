"""The geometry of a model in any quantization, from its dimensions and a recipe; or at a size that is given."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import log

from flashmoe_sim.geometry.families import GATE_UP
from flashmoe_sim.geometry.ggml_types import BY_NAME, tensor_bytes
from flashmoe_sim.geometry.mixes import GGUF, OF_IK, Recipe, meant_by, of_series, recipe_of, tidy
from flashmoe_sim.geometry.model import LayerGeometry, ModelGeometry
from flashmoe_sim.geometry.named import (
    DENSE_ESTIMATED,
    ESTIMATED,
    F32_BITS,
    MOST_BITS,
    NamedModel,
    file_bytes,
    file_weights_b,
    of_named,
    of_weights,
    size_hint,
    table_notes,
)
from flashmoe_sim.geometry.quantizer import FALLBACK, OfMix, type_of
from flashmoe_sim.geometry.tensors import OTHER, WITH_DRAFTING, Matrices, drafting, outside, table
from flashmoe_sim.io.errors import OutOfRange, UnknownName
from flashmoe_sim.io.notes import Note
from flashmoe_sim.io.sizes import size

NEAREST = 2  # quantizations that are named for one without a recipe
LEAST_BITS = 1.0  # of a weight, in a file
# Quantizations that stand for a size: of their types, each about a quarter of a bit from the next.
STANDING = (
    *("bf16", "q8_0", "q6_k", "q5_k_m", "q4_k_m", "iq4_xs", "q3_k_m"),
    *("iq3_xxs", "q2_k", "iq2_m", "iq2_xxs", "iq1_m", "iq1_s"),
)


def known(model: NamedModel, quant: str, uploader: str = "", *, asked: str = "") -> bool:
    """Whether the bytes of a model in a quantization are known."""
    quant = meant_by(tidy(quant), model.arch, asked or model.title)
    return quant in model.quants or _found(model, quant, uploader, asked) is not None


def geometry_of(model: NamedModel, quant: str, uploader: str = "", *, name: str = "", asked: str = "") -> ModelGeometry:
    """The geometry of dimensions in a quantization, whose name may be spelt in any usual way.

    uploader: who published the files, in small letters: the mixes of one name differ. name: of the result; without it,
    the model's title in small letters and the quantization. asked: the model's name as it was asked for.
    Raises UnknownName if there is no recipe for it.
    """
    asked = (asked or model.title).lower()
    quant = meant_by(tidy(quant), model.arch, asked)
    name = name or f"{model.title.lower()}:{quant}"
    own = uploader and of_series(quant, arch=model.arch, asked=asked, uploader=uploader)
    if quant in model.quants and not own:
        return of_named(model, quant, name=name)
    recipe = _found(model, quant, uploader, asked)
    if recipe is None:
        sized = f"{name.partition(':')[0]}@{size_hint(model)}"
        raise UnknownName(f"unknown quantization {quant!r}; give its size, such as {sized}")
    drafted = model.arch in WITH_DRAFTING or re.search(r"\bmtp\b", asked) is not None
    return of_recipe(model, recipe, quant, name=name, drafted=drafted and recipe.format in (GGUF, OF_IK))


def of_recipe(model: NamedModel, recipe: Recipe, quant: str, *, name: str, drafted: bool = False) -> ModelGeometry:
    """The geometry of dimensions by a recipe. drafted: whether the files hold the layers that only draft tokens."""
    weights = _weights(model, recipe, drafted=drafted)
    source = f"{model.title}: {model.source}. {quant}: {SOURCES.get(recipe.format, SOURCES[GGUF])}"
    basis = "; ".join(filter(None, (model.estimated, recipe.basis)))
    notes = [Note(ESTIMATED, f"{ESTIMATED}: {basis}")] if basis else []
    found = of_weights(model, weights.layers, dense_bytes=weights.dense, name=name, quant=quant, format=recipe.format)
    return replace(
        found,
        source=source,
        notes=(*model.notes, *notes, *table_notes(model), *_unknown_matrices(model)),
        embedding_bytes=weights.embedding,
        unread_bytes=weights.unread,
    )


SOURCES = {
    GGUF: "geometry/quantizer.py and recipes.toml, which name their sources",
    "mlx": "MLX's groups, or its kinds of 4 bits",
    "safetensors": "bits of a weight and its scales",
    "exl3": "bits of a weight, as the name says",
}


def of_size(
    model: NamedModel, size_bytes: int, quant: str = "", *, name: str = "", like: ModelGeometry | None = None
) -> ModelGeometry:
    """The geometry of dimensions in a file of a given size.

    Its matrices have the proportions of `like`, else of `quant`, else of the quantization nearest in size, scaled to
    the size exactly.
    Raises OutOfRange for a size that no file of the model has.
    """
    weights = file_weights_b(model) * 1e9
    bits, most_bits = 8 * size_bytes / weights, F32_BITS if quant == "f32" else MOST_BITS
    if not LEAST_BITS <= bits <= most_bits:
        least, most = (size(edge * weights / 8) for edge in (LEAST_BITS, most_bits))
        raise OutOfRange(
            f"{size(size_bytes)} is {bits:.3g} bits a weight of {model.title}, whose files have {least} to {most}",
            advice="give the size of all parts of the file, with its unit",
        )
    like = like or _standing(model, size_bytes, quant)
    times = size_bytes / file_bytes(like)
    layers = {
        number: LayerGeometry(
            layer.n_experts, {family: round(one * times) for family, one in layer.family_bytes.items()}
        )
        for number, layer in like.layers.items()
    }
    scaled = replace(like, layers=layers, unread_bytes=round(like.unread_bytes * times))
    dense = size_bytes - scaled.routed_bytes - scaled.unread_bytes
    said = f"the size is given; its matrices have the proportions of {like.quant} ({size(file_bytes(like))})"
    return replace(
        scaled,
        name=name or f"{model.title.lower()}@{size_bytes}B",
        dense_bytes=dense,
        embedding_bytes=round(like.embedding_bytes * times),
        notes=(*model.notes, Note(ESTIMATED, f"{ESTIMATED}: {said}")),
    )


def nearest_by_bits(model: NamedModel, bits: float, format: str) -> list[ModelGeometry]:
    """The quantizations of a format whose experts have the nearest number of bits."""
    weights = model.routed_params_b * 1e9
    models = [geometry_of(model, one) for one in dict.fromkeys((*STANDING, *model.quants)) if known(model, one)]
    models = [one for one in models if one.format == format]
    return sorted(models, key=lambda one: abs(8 * one.routed_bytes / weights - bits))[:NEAREST]


def _standing(model: NamedModel, size_bytes: int, quant: str) -> ModelGeometry:
    if quant and known(model, quant):
        return geometry_of(model, quant)
    return min(
        (geometry_of(model, one) for one in STANDING),
        key=lambda one: abs(log(file_bytes(one) / size_bytes)),
    )


@dataclass(frozen=True)
class _FileBytes:
    """The bytes of a model: of its experts by layer, outside them, of the embeddings, and of what no token reads."""

    layers: dict[int, LayerGeometry]
    dense: int
    embedding: int
    unread: int


def _unknown_matrices(model: NamedModel) -> list[str]:
    """The note on weights outside the experts whose matrices the dimensions do not give."""
    left = sum(tensor.weights for tensor in outside(model) if tensor.name == OTHER)
    if not left:
        return []
    said = f"{left / 1e9:.2g} of {model.dense_params_b:g} billion weights are taken as attention of an unknown shape"
    return [Note(DENSE_ESTIMATED, f"{DENSE_ESTIMATED}: {said}")]


def _found(model: NamedModel, quant: str, uploader: str, asked: str) -> Recipe | None:
    return recipe_of(quant, arch=model.arch, asked=asked or model.title, uploader=uploader)


def _weights(model: NamedModel, recipe: Recipe, *, drafted: bool) -> _FileBytes:
    rest = outside(model)
    types = _Types(model, recipe, rest)
    layers = {number: types.layer(number) for number in model.layer_numbers}
    dense = sum(types.bytes_of(tensor) for tensor in rest)
    embedding = sum(types.bytes_of(tensor) for tensor in rest if tensor.name == "token_embd" and not model.tied)
    unread = round(model.vision_params_b * 1e9) * 2 * recipe.vision
    if drafted:
        last = layers[max(layers)]
        unread += sum(types.bytes_of(tensor) for tensor in drafting(model))
        unread += model.drafting * last.n_experts * last.expert_bytes
    if model.table_bits:
        unread += round(model.table_params_b * 1e9 * model.table_bits / 8)
    else:
        unread += sum(types.bytes_of(tensor) for tensor in table(model))
    return _scaled(_FileBytes(layers, dense, embedding, unread), recipe, types)


def _scaled(weights: _FileBytes, recipe: Recipe, types: _Types) -> _FileBytes:
    """With as many bits a weight in the mean as the quantization's name says."""
    if not recipe.bits:
        return weights
    routed = sum(layer.n_experts * layer.expert_bytes for layer in weights.layers.values())
    times = (types.weights * recipe.bits / 8 - weights.dense) / routed
    layers = {
        number: LayerGeometry(layer.n_experts, {name: round(one * times) for name, one in layer.family_bytes.items()})
        for number, layer in weights.layers.items()
    }
    return replace(weights, layers=layers)


class _Types:
    """The types of a model's matrices in a recipe."""

    def __init__(self, model: NamedModel, recipe: Recipe, rest: Sequence[Matrices]) -> None:
        self.model, self.recipe = model, recipe
        self.facts = _facts(model, rest)
        self.weights = sum(tensor.weights for tensor in rest) + model.routed_params_b * 1e9

    def layer(self, number: int) -> LayerGeometry:
        """One layer's experts, in bytes."""
        families = {tensor.name: self.bytes_of(tensor) for tensor in _expert(self.model, number)}
        return LayerGeometry(self.model.experts, families)

    def bytes_of(self, tensor: Matrices) -> int:
        """The bytes of matrices."""
        if tensor.float:
            return self.recipe.float_bytes * tensor.weights
        found = self.recipe.type_of(tensor.name, tensor.layer, self.model.blocks)
        found = found or type_of(self.recipe.mix, tensor.name, tensor.layer, self.facts)
        return matrix_bytes(found, tensor.row, tensor.rows)


def _expert(model: NamedModel, layer: int) -> Iterator[Matrices]:
    """The matrices of one routed expert."""
    if model.fused:
        yield Matrices(GATE_UP, layer, model.hidden, 2 * model.width)
    else:
        for part in ("gate", "up") if model.gated else ("up",):
            yield Matrices(f"ffn_{part}_exps", layer, model.hidden, model.width)
    yield Matrices("ffn_down_exps", layer, model.width, model.hidden)


def matrix_bytes(type_name: str, row: int, rows: int) -> int:
    """Bytes of `rows` rows of `row` weights in a type, or in what the quantizer takes if blocks do not fill a row."""
    if type_name.endswith("b"):
        return round(row * rows * float(type_name[:-1]) / 8)
    storage = BY_NAME[type_name]
    while row % storage.block_weights:
        storage = BY_NAME[FALLBACK.get(storage.name, "F16")]
    return tensor_bytes(storage, (row, rows))


def _facts(model: NamedModel, rest: Iterable[Matrices]) -> OfMix:
    networks = [int(layer in model.layer_numbers) for layer in range(model.blocks)]
    values = []
    for tensor in rest:
        if tensor.name.startswith("ffn_down"):
            networks[tensor.layer] += 1
        if tensor.name in ("attn_v", "attn_qkv"):
            values.append(tensor.layer)
    attention = model.context.get("attention", {})
    heads, kv_heads = (_first(attention.get(key, 0)) for key in ("head_count", "head_count_kv"))
    shared = heads / kv_heads if kv_heads else 0.0
    return OfMix(model.blocks, model.experts, shared, model.tied, tuple(values), tuple(networks))


def _first(value: int | Sequence[int]) -> int:
    return value[0] if isinstance(value, Sequence) else value
