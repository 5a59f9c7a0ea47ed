"""`sim model list` and `show`: the size of a model's experts."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, NamedTuple

from flashmoe_sim.geometry import ModelGeometry, load_model, named_model, named_models
from flashmoe_sim.geometry.families import ranges
from flashmoe_sim.geometry.graph import Graph
from flashmoe_sim.geometry.model import MAX_IO_SPLIT, Attention
from flashmoe_sim.geometry.named import DENSE_ESTIMATED, ESTIMATED, NamedModel, file_bytes
from flashmoe_sim.io.notes import code_of
from flashmoe_sim.io.sections import Column, Item, Section, Table, count, table
from flashmoe_sim.io.sizes import GIB, MIB, size
from flashmoe_sim.options import NAMES_MODEL, option, option_field
from flashmoe_sim.verbs.base import Verb

SMALLEST_BANK = 16
_FORMATS = {"gguf": "GGUF", "gguf-ik": "GGUF of ik_llama.cpp", "mlx": "MLX"}
_YES_NO = {None: "not known", True: "yes", False: "no"}
CONTEXTS = (4096, 32768, 131072)


class ListedModel(NamedTuple):
    """A name, what it stands for, and the model in its default quantization."""

    name: str
    entry: NamedModel
    model: ModelGeometry


@dataclass(frozen=True, kw_only=True)
class ListModels(Verb[list[ListedModel]]):
    """Find every model that has a name."""

    help: ClassVar[str] = "List the models known by name, each in its default quantization."

    def run(self) -> list[ListedModel]:
        """The models in the order of their table."""
        return [ListedModel(name, entry, named_model(name)) for name, entry in named_models().items()]

    def document(self, found: list[ListedModel]) -> dict[str, Any]:
        """What `--json` prints."""
        return {
            "models": [
                {
                    "name": one.name,
                    "default_quant": one.entry.default,
                    "quants": sorted(one.entry.quants),
                    "moe_layers": len(one.model.layers),
                    "n_experts": one.entry.experts,
                    "top_k": one.model.top_k,
                    "routed_bytes": one.model.routed_bytes,
                    "estimated": _is_estimated(one.model),
                    "source": one.model.source,
                    "notes": one.model.notes,
                }
                for one in found
            ]
        }

    def sections(self, found: list[ListedModel]) -> list[Section]:
        """A row for each."""
        columns: list[Column] = [
            ("model", "left", lambda one: one.name),
            ("default", "left", lambda one: one.entry.default),
            ("layers x experts", "right", lambda one: f"{len(one.model.layers)} x {one.entry.experts}"),
            ("top-k", "right", lambda one: str(one.model.top_k)),
            ("routed GiB", "right", lambda one: f"{'~' * _is_estimated(one.model)}{one.model.routed_bytes / GIB:,.1f}"),
        ]
        caption = "~ estimated; `sim model show NAME` says why. NAME:QUANT is another quantization."
        return [Section("", (table(columns, found, caption=caption, dispensable=("top-k",)),))]


@dataclass(frozen=True, kw_only=True)
class ShowModel(Verb[ModelGeometry]):
    """Find one model."""

    help: ClassVar[str] = """Show the bytes of an expert, layer by layer, of a token and of a bank.

    SPEC is a GGUF file (any one of a split model), a config.json of transformers, a sidecar folder or its
    manifest.json; or what people write for a model: a name from `sim model list`, a repository or a file that is not
    there, with `:` and a quantization, or `@` and the size of its files.

    \b
    Example: sim model show unsloth/Qwen3-30B-A3B-GGUF:UD-Q4_K_XL
             sim model show qwen3-235b-a22b@103GB
             sim model show kimi-k2.5:q4_k_m --json
    """

    spec: str = field(kw_only=False, metadata=option(NAMES_MODEL, "", positional=True))
    io_split: int = option_field(
        4,
        "N",
        "Chunks in which one tensor of an expert is read, like the runtime's --moe-cache-io-split.",
        least=1,
        most=MAX_IO_SPLIT,
    )

    def run(self) -> ModelGeometry:
        """The model's geometry."""
        return load_model(self.spec)

    def document(self, found: ModelGeometry) -> dict[str, Any]:
        """What `--json` prints."""
        model, io_split = found, self.io_split
        return {
            "identity": {"name": model.name, "arch": model.arch, "quant": model.quant, "source": model.source},
            "format": model.format or None,
            "graph": asdict(model.graph),
            "width": model.width or None,
            "moe_layers": len(model.layers),
            "n_experts": _spread([layer.n_experts for layer in model.layers.values()]),
            "top_k": model.top_k,
            "expert_bytes": _spread([layer.expert_bytes for layer in model.layers.values()]),
            "family_bytes": {family: _spread(sizes) for family, sizes in _families(model).items()},
            "routed_bytes": model.routed_bytes,
            "dense_bytes": model.dense_bytes,
            "unread_bytes": model.unread_bytes,
            "file_bytes": None if model.dense_bytes is None else file_bytes(model),
            "context": None if model.attention is None else _context(model.attention),
            "token_cycle_bytes": model.token_cycle_bytes() if model.top_k else None,
            "io_split": io_split,
            "read_ops_per_install": _spread([layer.read_ops(io_split=io_split) for layer in model.layers.values()]),
            "bank_bytes": {str(slots): model.bank_bytes(slots) for slots in _banks(model)},
            "layers": [
                {
                    "layer": number,
                    "n_experts": layer.n_experts,
                    "expert_bytes": layer.expert_bytes,
                    "family_bytes": dict(layer.family_bytes),
                    "read_ops": layer.read_ops(io_split=io_split),
                }
                for number, layer in model.layers.items()
            ],
            "notes": model.notes,
        }

    def sections(self, found: ModelGeometry) -> list[Section]:
        """The model, its layers and its banks."""
        tables = (_summary(found, self.io_split), _layers(found, self.io_split), _bank_sizes(found))
        lines = (f"source: {found.source}", *(f"note: {note}" for note in found.notes))
        return [Section("", (*tables, *(Item(line, 2) for line in lines)))]


def _summary(model: ModelGeometry, io_split: int) -> Table:
    experts = _spread([layer.n_experts for layer in model.layers.values()])
    sizes = _spread([layer.expert_bytes for layer in model.layers.values()])
    reads = _spread([layer.read_ops(io_split=io_split) for layer in model.layers.values()])
    dense = "not known" if model.dense_bytes is None else f"{model.dense_bytes / GIB:,.2f} GiB"
    if DENSE_ESTIMATED in map(code_of, model.notes):
        dense = f"~{dense}"
    cycle = f"{model.token_cycle_bytes() / MIB:,.1f} MiB" if model.top_k else "not known"
    rows = [
        ("architecture", model.arch or "not known"),
        ("quantization", model.quant or "not known"),
        ("format", _FORMATS.get(model.format, model.format) or "not known"),
        *_graph_rows(model.graph),
        ("MoE layers", str(len(model.layers))),
        ("experts a layer", _min_max(experts)),
        ("experts a token (top-k)", str(model.top_k or "not known")),
        ("bytes an expert, least", f"{sizes['min']:,}"),
        ("bytes an expert, mean", f"{sizes['mean']:,.0f}"),
        ("bytes an expert, most", f"{sizes['max']:,}"),
        *((f"  {family}", _min_max(_spread(family_sizes))) for family, family_sizes in _families(model).items()),
        ("routed experts", f"{model.routed_bytes / GIB:,.2f} GiB"),
        ("dense weights", dense),
        *([("of its file, not read", size(model.unread_bytes))] if model.unread_bytes else []),
        *(
            []
            if model.dense_bytes is None
            else [("file", f"{file_bytes(model) / 1e9:,.1f} GB ({size(file_bytes(model))})")]
        ),
        *_context_rows(model),
        ("experts of one token", cycle),
        (f"reads an install (split {io_split})", _min_max(reads)),
    ]
    return Table([("model", "left"), (model.name, "right")], rows)


def _graph_rows(graph: Graph) -> list[tuple[str, str]]:
    """What engines ask about how the experts are computed; the rare traits only if the model has them."""
    gate = {None: "", True: "", False: ", no gate"}[graph.gated]
    clamp = ", clamped" if graph.clamped else ""
    groups = "not known" if graph.groups is None else str(graph.groups) if graph.groups > 1 else "none"
    rows = [
        ("activation", f"{graph.activation or 'not known'}{gate}{clamp}"),
        ("biases in experts", _YES_NO[graph.biases]),
        ("gate and up in one tensor", _YES_NO[graph.fused]),
        ("expert groups", groups),
    ]
    rare = [("a scale per expert", graph.scales), ("routing weights before experts", graph.weights_first)]
    return [*rows, *((name, "yes") for name, has in rare if has)]


def _context_rows(model: ModelGeometry) -> list[tuple[str, str]]:
    if model.attention is None:
        return [("context", "not known")]
    rows = [("bytes a token of context", f"{model.attention.token_bytes():,}")]
    for tokens in CONTEXTS:
        rows.append((f"context of {tokens:,} tokens", size(model.attention.context_bytes(tokens))))
    return rows


def _context(attention: Attention) -> dict[str, Any]:
    """Bytes with 16-bit values: of each additional token, once every window is full, and of whole contexts."""
    contexts = {str(tokens): attention.context_bytes(tokens) for tokens in CONTEXTS}
    return {"token_bytes": attention.token_bytes(), "context_bytes": contexts}


def _layers(model: ModelGeometry, io_split: int) -> Table:
    """One row for all equal layers."""
    equal: dict[Any, list[int]] = {}
    for number, layer in model.layers.items():
        equal.setdefault((layer.n_experts, *sorted(layer.family_bytes.items())), []).append(number)
    columns: list[Column] = [
        ("layers", "left", ranges),
        ("count", "right", lambda numbers: str(len(numbers))),
        ("experts", "right", lambda numbers: str(model.layers[numbers[0]].n_experts)),
        ("bytes an expert", "right", lambda numbers: count(model.layers[numbers[0]].expert_bytes)),
        ("reads", "right", lambda numbers: str(model.layers[numbers[0]].read_ops(io_split=io_split))),
    ]
    return table(columns, equal.values())


def _bank_sizes(model: ModelGeometry) -> Table:
    columns: list[Column] = [
        ("slots a layer", "right", str),
        ("bank GiB", "right", lambda slots: f"{model.bank_bytes(slots) / GIB:,.2f}"),
        ("of the routed experts", "right", lambda slots: f"{model.bank_bytes(slots) / model.routed_bytes:.1%}"),
    ]
    return table(columns, _banks(model))


def _banks(model: ModelGeometry) -> list[int]:
    """Bank sizes by doubling, and the largest that a layer can use."""
    most = max(layer.n_experts for layer in model.layers.values())
    sizes = [SMALLEST_BANK << step for step in range(most.bit_length()) if SMALLEST_BANK << step < most]
    return [*sizes, most]


def _is_estimated(model: ModelGeometry) -> bool:
    return ESTIMATED in map(code_of, model.notes)


def _families(model: ModelGeometry) -> dict[str, list[int]]:
    """Bytes of each family, over the layers that have it."""
    sizes: dict[str, list[int]] = {}
    for layer in model.layers.values():
        for family, size_bytes in layer.family_bytes.items():
            sizes.setdefault(family, []).append(size_bytes)
    return sizes


def _spread(values: list[int]) -> dict[str, Any]:
    return {"min": min(values), "mean": sum(values) / len(values), "max": max(values)}


def _min_max(spread: dict[str, Any]) -> str:
    return f"{spread['min']:,}" if spread["min"] == spread["max"] else f"{spread['min']:,} to {spread['max']:,}"
