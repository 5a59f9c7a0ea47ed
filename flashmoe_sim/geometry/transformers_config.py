"""A `config.json` of transformers: a model's dimensions, by which it is found among the models known by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.geometry.named import NamedModel, meant, named_model, named_models
from flashmoe_sim.io import strict_json
from flashmoe_sim.io.errors import UnknownName, Unsupported, shown
from flashmoe_sim.io.files import BOM, as_utf8

FILE_NAME = "config.json"
MOST_BYTES = 4 * 2**20
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_moe_experts", "n_experts")
TOP_K = ("num_experts_per_tok", "num_experts_per_token", "top_k_experts", "experts_per_token", "moe_topk", "moe_k")
WIDTH = ("moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size", "ffn_hidden_size")
LAYERS, HIDDEN, VOCAB = ("num_hidden_layers", "num_layers", "n_layer"), ("hidden_size", "d_model"), ("vocab_size",)
MOST_NAMES = 4  # that are listed
MOST_NESTED = 3
ADVICE = "give a GGUF file, or a name such as qwen3-30b-a3b (`sim model list`)"


def read_config(path: Path) -> ModelGeometry | None:
    """The named model whose dimensions a config.json has, in its default quantization; None for any other file.

    Raises BadInput for a model without experts, and for dimensions that no known model has, or several have.
    """
    document = _document(path)
    if document is None:
        return None
    name = document.get("architectures")
    kind = shown(name[0] if isinstance(name, list) and name else document.get("model_type"), 60)
    what = f"{path}: a config.json of transformers ({kind}), which has no weights"
    texts = [text for text in _objects(document, MOST_NESTED) if _number(text, LAYERS) and _number(text, EXPERTS)]
    if not texts:
        raise Unsupported(f"{what}, and says of no routed experts: not a mixture-of-experts model", advice=ADVICE)
    text = max(texts, key=lambda one: _number(one, EXPERTS))
    found = [name for name, model in named_models().items() if _is_of(text, model)]
    vocab, kind_of = _number(text, VOCAB), re.sub("[^a-z0-9]", "", str(text.get("model_type")).lower())
    found = _narrowed(found, lambda model: not vocab or model.vocab in (0, vocab))
    found = _narrowed(found, lambda model: model.arch == kind_of)
    own = meant(str(document.get("_name_or_path") or path.absolute().parent.name))
    if own in found or len(found) == 1:
        chosen = own if own in found else found[0]
        model = named_model(chosen)
        note = (
            f"{path} has the dimensions of {chosen} and no weights: taken as {chosen}:{model.quant.lower()}; give "
            "--model NAME:QUANT for another quantization"
        )
        return replace(model, notes=(*model.notes, note))
    sizes = f"{_number(text, LAYERS)} layers, {_number(text, EXPERTS)} experts, {_number(text, TOP_K)} a token"
    if found:
        raise UnknownName(f"{what}; {', '.join(found[:MOST_NAMES])} have its {sizes}", advice="give one of these names")
    raise UnknownName(f"{what}; no model with a name has its {sizes}", advice=ADVICE)


def _narrowed(names: list[str], alike: Callable[[NamedModel], bool]) -> list[str]:
    """The models that pass a test, or all of them if none does."""
    return [name for name in names if alike(named_models()[name])] or names


def _document(path: Path) -> dict[str, Any] | None:
    try:
        if path.stat().st_size > MOST_BYTES:
            return None
        document = strict_json.loads(as_utf8(path.read_bytes()).removeprefix(BOM))
    except (OSError, ValueError):
        return None
    its = isinstance(document, dict) and "entries" not in document and {"architectures", "model_type"} & set(document)
    return document if its else None


def _objects(document: Mapping[str, Any], nested: int) -> Iterator[Mapping[str, Any]]:
    yield document
    for value in document.values():
        if nested and isinstance(value, dict):
            yield from _objects(value, nested - 1)


def _number(text: Mapping[str, Any], names: tuple[str, ...]) -> int:
    """The first whole number among these fields, or the largest of a list with one for each layer; 0 for none."""
    for name in names:
        value = text.get(name)
        numbers = [one for one in (value if isinstance(value, list) else [value]) if type(one) is int and one > 0]
        if numbers:
            return max(numbers)
    return 0


def _is_of(text: Mapping[str, Any], model: NamedModel) -> bool:
    """Whether a model has the dimensions of a file; what the file does not say is not compared."""
    needed = ((model.blocks, LAYERS), (model.experts, EXPERTS))
    others = ((model.hidden, HIDDEN), (model.width, WIDTH), (model.top_k, TOP_K))
    return all(own == _number(text, names) for own, names in needed) and all(
        _number(text, names) in (0, own) for own, names in others
    )
