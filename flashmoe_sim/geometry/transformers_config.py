"""A `config.json` of transformers: a model's dimensions and how its weights are stored, before any is downloaded."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from flashmoe_sim.geometry.config_quant import MIXED, MLX_MIXED, Stored, stored_as
from flashmoe_sim.geometry.config_shape import EXPERTS, HIDDEN, TOP_K, ConfigShape, said_of, shape_of
from flashmoe_sim.geometry.graph import Graph
from flashmoe_sim.geometry.mixes import Recipe
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.geometry.named import DENSE_ESTIMATED, NamedModel, file_bytes, named_models, size_hint
from flashmoe_sim.geometry.names import asked
from flashmoe_sim.geometry.recipes import geometry_of, known, of_recipe, of_size
from flashmoe_sim.io.errors import BadInput, Malformed, Unsupported, shown
from flashmoe_sim.io.files import BOM, as_utf8
from flashmoe_sim.io.notes import TAKEN, Note, code_of
from flashmoe_sim.io.sizes import exact_size

FILE_NAME = "config.json"
QUANTIZED, INDEX = "hf_quant_config.json", "model.safetensors.index.json"  # files beside it
MOST_BYTES = 32 * 2**20
MOST_NESTED = 3
SAME_OUTSIDE = 0.1  # of the weights outside the experts, of which some published totals are rounded
SAME_BYTES = 0.01  # of a file, outside the experts, that are as good as equal
AS_MIXED = ("mxfp4-q8", "mxfp4-q4")  # quantizations that configs of MLX write module by module
USUAL = "q4_k_m"
# Fields of published configs of known models that say nothing new of them.
OF_KNOWN = frozenset(
    {"index_share_for_mtp_iteration", "index_skip_topk_offset", "indexer_types", "sparse_attention_config"}
)
SCALE_BITS, SAME_BITS = 16, 0.02  # of a scale; and bits of a weight that are as good as equal
ADVICE = "give a GGUF file, or a name such as qwen3-30b-a3b (`sim model list`)"
_HASH = re.compile(r"[0-9a-f]{40}")


def read_config(path: Path, *, quant: str = "", size_bytes: int = 0) -> ModelGeometry | None:
    """The model with the dimensions of a config.json; None for any other file.

    It is a known model if one has all its dimensions; else what the file says is all that is known of it.
    quant: in which quantization; by default the one that the file says, else the usual one of four bits. size_bytes: of
    the whole model, if it is given instead.
    Raises BadInput for a model without experts, for impossible values, and for a quantization of unknown size.
    """
    document = _document(path)
    if document is None:
        return None
    classes = document.get("architectures")
    kind = shown(classes[0] if isinstance(classes, list) and classes else document.get("model_type"), 60)
    what = f"{path}: a config.json of transformers ({kind})"
    texts = [text for text in _objects(document, MOST_NESTED) if _experts(text) > 1]
    if not texts and (strange := sorted(_named_experts(document))):
        raise Unsupported(f"{what}, whose experts are in fields that are not known ({strange[0]})", advice=ADVICE)
    if not texts:
        raise Unsupported(f"{what}, which says of no routed experts: not a mixture-of-experts model", advice=ADVICE)
    text = _whole(document, max(texts, key=_experts))
    shape = shape_of(document, text, str(path))
    names = [name for name, model in named_models().items() if _is_of(shape, model)]
    folder = _folder(path)
    name = _chosen(names, str(document.get("_name_or_path") or ""), folder)
    entry = named_models()[name] if name else _entry(shape, f"{what}, as the file says it")
    beside = _beside(path.parent / QUANTIZED).get("quantization")
    try:
        stored = stored_as(document, text, beside if isinstance(beside, dict) else {}, entry, str(path))
    except BadInput:
        if not (quant or size_bytes):
            raise
        stored = Stored()
    own = _spelt(entry, stored.name)
    notes = [
        Note(TAKEN, _taken(path, names, shape)),
        *(shape.notes if not name else said_of([one for one in shape.unread if one not in OF_KNOWN])),
    ]
    if not size_bytes and not quant and own.startswith("mlx") and (its := _indexed(path.parent)):
        size_bytes, quant = its, own
    named = name or f"{folder}/{FILE_NAME}"
    mix = None if (quant and quant != own) or not stored.recipe else _mixed(entry, stored.recipe, named)
    if size_bytes:
        model = of_size(entry, size_bytes, quant or own, name=f"{named}@{exact_size(size_bytes)}", like=mix)
    elif mix:
        model = mix
        notes.append(Note(TAKEN, f"{path} says the bits of each module: {_said_bits(mix, entry)}"))
    elif stored.name in (MIXED, MLX_MIXED) and not quant:
        which = f" ({shown(stored.unknown)} among them)" if stored.unknown else ""
        raise Unsupported(
            f"{path}: its weights have mixed bits, not all of which are known here{which}",
            advice=f"give their size, {path}@{size_hint(entry)}",
        )
    else:
        model, said = _quantized(entry, named, quant, own, path)
        notes += said
    if not name and not shape.dense_b:
        estimated = [note for note in model.notes if code_of(note) != DENSE_ESTIMATED]
        model = replace(model, dense_bytes=None, dense_weights=0, notes=tuple(estimated))
    return replace(model, notes=(*model.notes, *notes))


def _quantized(entry: NamedModel, name: str, quant: str, own: str, path: Path) -> tuple[ModelGeometry, list[str]]:
    """The model in the given quantization, else its own, else the usual one; and what was chosen."""
    usual = entry.default
    if quant or not own:
        said = "" if quant else f"{path} says no quantization: taken as {usual}; give {path}:QUANT for another"
        return geometry_of(entry, quant or usual, name=f"{name}:{quant or usual}"), [Note(TAKEN, said)] if said else []
    try:
        model = geometry_of(entry, own, name=f"{name}:{own}")
    except BadInput:
        raise Unsupported(
            f"{path}: its weights are in {own}, whose bytes are not known here",
            advice=f"give their size, {path}@{size_hint(entry)}, or another quantization, {path}:{usual}",
        ) from None
    return model, [
        Note(TAKEN, f"{path} says that its weights are in {own}; give {path}:QUANT for another quantization")
    ]


def _mixed(entry: NamedModel, recipe: Recipe, name: str) -> ModelGeometry:
    """The model with bits of its own for some modules, by the name of a quantization if one has the same bytes."""
    for usual in AS_MIXED:
        one = geometry_of(entry, usual, name=f"{name}:{usual}")
        mix = of_recipe(entry, recipe, usual, name=one.name)
        apart = abs((mix.dense_bytes or 0) - (one.dense_bytes or 0))
        if mix.layers == one.layers and apart < SAME_BYTES * file_bytes(one):
            return one
    return of_recipe(entry, recipe, MLX_MIXED, name=f"{name}:{MLX_MIXED}")


def _said_bits(model: ModelGeometry, entry: NamedModel) -> str:
    """Bits of a weight, in the experts and outside them."""
    found = f"{8e-9 * model.routed_bytes / entry.routed_params_b:.3g} for a weight of its experts"
    if not model.dense_bytes or not model.dense_weights:
        return found
    return f"{found}, {8 * model.dense_bytes / model.dense_weights:.3g} outside them"


def _spelt(entry: NamedModel, own: str) -> str:
    """A quantization as the recipes spell it: without its group size, if the bits of a weight agree with it."""
    plain, _, group = own.partition("-g")
    if not group.isdecimal() or known(entry, own) or not known(entry, plain):
        return own
    bits = 8e-9 * geometry_of(entry, plain).routed_bytes / entry.routed_params_b
    return plain if abs(bits - int(re.sub(r"\D", "", plain) or 0) - SCALE_BITS / int(group)) < SAME_BITS else own


def _is_of(shape: ConfigShape, model: NamedModel) -> bool:
    """Whether a known model has all dimensions of a file; a vocabulary that the table does not know is not compared."""
    same = all(
        getattr(shape, what) == getattr(model, what)
        for what in ("arch", "blocks", "experts", "top_k", "hidden", "width", "gated", "tied")
    )
    same = same and shape.moe_layers == model.layer_numbers and (model.vocab in (0, shape.vocab) or not shape.vocab)
    counted = shape.dense_b if shape.vocab else 0.0  # such as a shared expert that the known model has not
    return same and (not counted or abs(counted / model.dense_params_b - 1) <= SAME_OUTSIDE)


def _chosen(names: list[str], *hints: str) -> str:
    """One of several models with the same dimensions: the one that the name or folder says, else the first."""
    for hint in hints:
        try:
            found = asked(hint)
        except BadInput:
            continue
        if found is not None and found.model in names:
            return found.model
    return names[0] if names else ""


def _taken(path: Path, names: list[str], shape: ConfigShape) -> str:
    sizes = f"{shape.blocks} layers, {shape.experts} experts, {shape.top_k} a token"
    if names:
        return f"{path} has the dimensions of {' and '.join(names)} ({sizes})"
    outside = f"{shape.dense_b:.3g} billion weights outside them" if shape.dense_b else "the weights outside not known"
    return f"{path} is of no known model: {sizes}, {outside}, all from its fields; what sees or hears is not counted"


def _entry(shape: ConfigShape, source: str) -> NamedModel:
    """The dimensions as those of a named model."""
    parts = ", ".join(f"{name} {value:.3g}" for name, value in shape.parts_b.items())
    return NamedModel(
        title=shape.kind,
        arch=shape.arch,
        blocks=shape.blocks,
        experts=shape.experts,
        top_k=shape.top_k,
        hidden=shape.hidden,
        width=shape.width,
        default=USUAL,
        source=source,
        dense_params_b=shape.dense_b,
        dense_source=f"from its fields: {parts}",
        quants={},
        moe_layers=", ".join(map(str, shape.moe_layers)),
        fused=shape.fused,
        gated=shape.gated,
        vocab=shape.vocab,
        tied=shape.tied or not shape.dense_b,
        context=dict(shape.context),
        graph=Graph(groups=shape.groups, gated=shape.gated),
        drafting=shape.drafting,
        shared=shape.shared,
        dense_width=shape.dense_width,
        q_rank=shape.q_rank,
    )


def _indexed(folder: Path) -> int:
    """The bytes of all weights, as the index beside a config says; 0 if there is none."""
    metadata = _beside(folder / INDEX).get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    return total if type(total) is int and total > 0 else 0


def _folder(path: Path) -> str:
    """What a config's folder is called; in Hugging Face's cache, the repository."""
    folder = path.absolute().parent
    if _HASH.fullmatch(folder.name) and folder.parent.name == "snapshots":
        folder = folder.parent.parent
    return folder.name.removeprefix("models--").replace("--", "/")


def _document(path: Path) -> dict[str, Any] | None:
    """A parsed config; None for any other file. Raises BadInput for a config.json that is not JSON."""
    try:
        if path.stat().st_size > MOST_BYTES:
            return None
        document = json.loads(as_utf8(path.read_bytes()).removeprefix(BOM), parse_constant=lambda _: None)
    except OSError:
        return None
    except (ValueError, RecursionError) as error:
        if path.name == FILE_NAME:
            raise Malformed(f"{path}: not JSON ({error})", advice="give the config.json as it was published") from None
        return None
    if not isinstance(document, dict) or "entries" in document or "_class_name" in document:
        return None
    named = any(text.get(name) for text in _objects(document, 1) for name in ("architectures", "model_type"))
    return document if named else None


def _beside(path: Path) -> dict[str, Any]:
    """A JSON object in a file beside a config; empty if there is none."""
    try:
        if path.stat().st_size > MOST_BYTES:
            return {}
        found = json.loads(as_utf8(path.read_bytes()).removeprefix(BOM))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _objects(document: Mapping[str, Any], nested: int) -> Iterator[Mapping[str, Any]]:
    yield document
    for value in document.values():
        if nested and isinstance(value, dict):
            yield from _objects(value, nested - 1)


def _whole(document: Mapping[str, Any], text: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of a language model, of which DBRX has objects for the attention and the experts."""
    if any(name in text for name in HIDDEN):
        return text
    parts = [*_objects(document, 1)]
    fields = {name: value for part in (*parts[1:], document, text) for name, value in part.items() if value}
    return {name: value for name, value in fields.items() if not isinstance(value, dict) or "quant" in name}


def _named_experts(document: Mapping[str, Any]) -> set[str]:
    """Unknown fields with numbers that are named for experts."""
    fields = [(name, value) for text in _objects(document, MOST_NESTED) for name, value in text.items()]
    named = {name for name, value in fields if "experts" in name and type(value) is int and value > 1}
    return named - {*EXPERTS, *TOP_K}


def _experts(text: Mapping[str, Any]) -> int:
    """How many experts an object says; 0 for none."""
    for name in EXPERTS:
        value = text.get(name)
        values = value if isinstance(value, list) else [value]
        if numbers := [one for one in values if type(one) is int and one > 0]:
            return max(numbers)
    return 0
