"""The model of a row: the named model, with the bytes of the row's quantization."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace

from flashmoe_sim.field.engines import reads_gguf
from flashmoe_sim.field.quants import EXACT, FOUR_BITS, NATIVE_BITS, SHORT, UNTOLD, bits_of, quant_of
from flashmoe_sim.field.rows import FieldRow
from flashmoe_sim.geometry.model import LayerGeometry, ModelGeometry
from flashmoe_sim.geometry.named import NamedModel, name_in, named_model, named_models
from flashmoe_sim.geometry.names import asked
from flashmoe_sim.io.errors import BadInput, Conflict, UnknownName, shown
from flashmoe_sim.io.sizes import GIB, UNITS

_PER_EXPERT = re.compile(r"(\d[\d,]*(?:\.\d+)?) ?([KMG]?i?B)/expert", re.IGNORECASE)
_FILE = re.compile(r"(\d+(?:\.\d+)?) ?(Gi?B) file\b", re.IGNORECASE)
_OF_EXPERTS = re.compile(r"experts? \((\d[\d,]*(?:\.\d+)?) ?([KMG]?i?B)\)", re.IGNORECASE)
_UNITS = {unit.lower(): size for unit, size in UNITS.items()}
LEAST_DENSE = 0.6  # of what is expected: a file with fewer bytes outside the experts contradicts the bytes of an expert
MOST_DENSE_BITS = 16.1  # more is no weight of the model: drafting layers, vision
TABLE_8_BIT = re.compile(r"fp8|nvfp4|bf16", re.IGNORECASE)


def name_of(row: FieldRow) -> str:
    """The name of the named model that a row ran.

    A name counts if its words begin with the words of a known name (`Qwen3-30B-A3B-Instruct-2507`), or the other way
    round (`Qwen3-30B`) for one known name only, or if the commands take it (`gpt-oss:120b`). Raises BadInput if no name
    counts.
    """
    try:
        return name_in(row.model)
    except BadInput as error:
        with suppress(BadInput):
            if (found := asked(row.model)) is not None:
                return found.model
        raise type(error)(f"{row.where}: {error}") from None


def model_of(row: FieldRow) -> ModelGeometry:
    """The model of a row: layers of the named model, experts a token as run, bytes of the row's quantization.

    Bytes are those that the row says of an expert; else of its file, split as the named model's; else of the named
    quantization, or of the bits that its name stands for. Raises BadInput if the model or the quantization is unknown,
    or if the row's numbers contradict the model.
    """
    name = name_of(row)
    entry = named_models()[name]
    if row.model_file_gib is None and (told := _FILE.search(row.quant)):
        row = replace(row, model_file_gib=float(told[1]) * _UNITS[told[2].lower()] / GIB)
    base = _with_pruned_experts(row, _top_k(row, _quantized(row, name, entry)))
    expert_bytes = named_expert_bytes(row)
    if expert_bytes is not None:
        mean = base.routed_bytes / sum(layer.n_experts for layer in base.layers.values())
        base = _scaled(base, expert_bytes / mean, f"{expert_bytes:,.0f} bytes an expert, as the row says")
    if row.model_file_gib is None:
        return base
    held = row.model_file_gib * GIB - _table_bytes(row, entry, base) - _drafting_bytes(row, base)
    dense_bytes = base.dense_bytes or 0
    if expert_bytes is not None or base.quant in EXACT:
        rest = held - base.routed_bytes
        if rest >= LEAST_DENSE * dense_bytes:
            rest = min(rest, entry.dense_params_b * 1e9 * MOST_DENSE_BITS / 8)
            base = replace(base, source=f"{base.source}; dense bytes: the rest of the row's file")
            return _with_dense(base, rest)
        if expert_bytes is not None:
            return base
    factor = held / (base.routed_bytes + dense_bytes)
    scaled = _scaled(base, factor, f"a file of {row.model_file_gib:g} GiB, as the row says")
    return _with_dense(scaled, dense_bytes * factor)


def named_expert_bytes(row: FieldRow) -> float | None:
    """Bytes of an expert, if the text of the quantization says them."""
    match = _PER_EXPERT.search(row.quant) or _OF_EXPERTS.search(row.quant)
    return float(match[1].replace(",", "")) * _UNITS[match[2].lower()] if match else None


def _quantized(row: FieldRow, name: str, entry: NamedModel) -> ModelGeometry:
    """The named model in the row's quantization; in its default one if only sizes are told, or nothing at all."""
    known = tuple(entry.quants)
    base = named_model(name)
    if FOUR_BITS.fullmatch(row.quant) and reads_gguf(row.engine):
        row = replace(row, quant=SHORT["q4"])
    bits = bits_of(row.quant)
    if not row.quant or (bits is None and UNTOLD.search(row.quant)):
        return replace(base, notes=(*base.notes, f"the row names no quantization: {entry.default} is assumed"))
    if (quant := quant_of(row.quant, known)) is not None:
        return named_model(f"{name}:{quant}")
    native = NATIVE_BITS.get(name)
    if native is not None and (bits is None or bits >= native):
        return base
    if bits is None:
        if row.model_file_gib is None and named_expert_bytes(row) is None:
            raise UnknownName(
                f"{row.where}: unknown quantization {shown(row.quant)} of {name}, and no size of its file"
            )
        return base
    own = 8e-9 * base.routed_bytes / entry.routed_params_b
    scaled = _scaled(base, bits / own, f"{bits:g} bits a weight, from the name {row.quant!r}")
    dense_bits = min(max(bits + 0.7, 4.5), MOST_DENSE_BITS)
    return _with_dense(replace(scaled, quant=row.quant, format=""), entry.dense_params_b * 1e9 * dense_bits / 8)


def _top_k(row: FieldRow, model: ModelGeometry) -> ModelGeometry:
    if row.top_k is None or row.top_k == model.top_k:
        return model
    if row.top_k > model.top_k:
        raise Conflict(f"{row.where}: top_k {row.top_k}, but {model.name} uses {model.top_k} experts a token")
    return replace(model, top_k=row.top_k)


def _with_pruned_experts(row: FieldRow, model: ModelGeometry) -> ModelGeometry:
    """The model with fewer experts a layer if the row says so, as pruned models have."""
    experts, known = row.total_experts, max(layer.n_experts for layer in model.layers.values())
    if experts is None or experts == known:
        return model
    if experts > known or experts < model.top_k:
        raise Conflict(f"{row.where}: {experts} experts a layer, but {model.name} has {known}")
    layers = {number: LayerGeometry(experts, layer.family_bytes) for number, layer in model.layers.items()}
    return replace(model, layers=layers, notes=(*model.notes, f"{experts} of {known} experts a layer, as the row says"))


def _table_bytes(row: FieldRow, entry: NamedModel, model: ModelGeometry) -> float:
    """Bytes that a table of embeddings takes of a file: 8 bits a weight in 8-bit quantizations, else as experts.

    None of it is in a file whose size is nearer to that of the quantization's other weights alone.
    """
    bits = 8.0 if TABLE_8_BIT.search(row.quant) else 8e-9 * model.routed_bytes / entry.routed_params_b
    table, others = entry.table_params_b * 1e9 * bits / 8, model.routed_bytes + (model.dense_bytes or 0)
    held = (row.model_file_gib or 0) * GIB
    return table if held * (held - table) > others**2 else 0.0


def _drafting_bytes(row: FieldRow, model: ModelGeometry) -> int:
    """Bytes of experts of drafting layers in a file: colibri's have them in 8 bits, twice those of the others."""
    if not row.engine.startswith("colibri"):
        return 0
    last = model.layers[max(model.layers)]
    return 2 * model.drafting_layers * last.n_experts * last.expert_bytes


def _with_dense(model: ModelGeometry, dense_bytes: float) -> ModelGeometry:
    """The model with other bytes outside the experts; its embeddings have the same share of them."""
    share = model.embedding_bytes / (model.dense_bytes or 1)
    return replace(model, dense_bytes=round(dense_bytes), embedding_bytes=round(share * dense_bytes))


def _scaled(model: ModelGeometry, factor: float, why: str) -> ModelGeometry:
    layers = {
        number: LayerGeometry(
            layer.n_experts, {family: max(round(size * factor), 1) for family, size in layer.family_bytes.items()}
        )
        for number, layer in model.layers.items()
    }
    return replace(model, layers=layers, source=f"{model.source}; experts scaled by {factor:.3g}: {why}")
