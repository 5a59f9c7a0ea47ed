"""Models known by name: sizes computed from published dimensions and storage types, each with its source."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cache
from importlib import resources
from math import log
from typing import Any

from flashmoe_sim.geometry.attention_keys import attention_of
from flashmoe_sim.geometry.compute_buffers import OTHER_GRAPHS, GraphWidths
from flashmoe_sim.geometry.families import GATE_UP
from flashmoe_sim.geometry.ggml_types import BY_NAME, GgmlType, tensor_bytes
from flashmoe_sim.geometry.graph import UNKNOWN, Graph, graph_of, read_graph
from flashmoe_sim.geometry.model import LayerGeometry, ModelGeometry
from flashmoe_sim.geometry.quantizer import FALLBACK, MIXES, more_bits
from flashmoe_sim.geometry.tensors import WITH_DRAFTING, drafting
from flashmoe_sim.io.errors import UnknownName, shown
from flashmoe_sim.io.notes import TAKEN, Note, code_of
from flashmoe_sim.io.sizes import size

# Types outside ggml. MLX's affine groups have a 16-bit scale and a 16-bit bias per 64 or 32 weights, those of MXFP4 an
# 8-bit scale per 32. FP8, INT8 and INT4 have a scale per block or row, which is left out; INT4_G64 has a 32-bit scale
# per 64 weights.
_OTHERS = (
    *(GgmlType(-1, f"MLX_{bits}BIT", 64, 8 * bits + 4) for bits in (2, 3, 4, 5, 6, 8)),
    GgmlType(-1, "MLX_4BIT_G32", 32, 20),
    GgmlType(-1, "MLX_MXFP4", 32, 17),
    GgmlType(-1, "FP8", 1, 1),
    GgmlType(-1, "INT8", 1, 1),
    GgmlType(-1, "INT4", 2, 1),
    GgmlType(-1, "INT4_G64", 64, 36),
    GgmlType(-1, "VQ3R", 8, 3),
)
_TYPES = {**BY_NAME, **{storage.name: storage for storage in _OTHERS}}
# Models in NVFP4 are published as safetensors; llama.cpp can convert them (conversion/base.py:655-775@0eca4d490). VQ3R
# is sqliteai/warp's.
_FORMATS = {"MLX": "mlx", "FP8": "safetensors", "INT": "safetensors", "NVFP4": "safetensors", "VQ3R": "warp"}
# For names of quantizations: a pattern with the bits in its first group, the format of the files, and how many bits
# scales and a mix add.
_BITS = (
    (r"^(?:mlx\D*)?(\d+(?:\.\d+)?)-?bit|^mlx\D*(\d)", "mlx", 0.5),
    (r"^(?:nv|mx)fp(\d)|^(?:awq|gptq)\D*(\d)", "safetensors", 0.5),
    (r"^w(\d+)a\d+|^fp(8)|^int(\d)", "safetensors", 0.0),
    (r"^b?fp?(16|32)$", "gguf", 0.0),
    (r"^[it]?q([1-8])(?:_\w+)?$", "gguf", 0.5),
)
# What people shorten, if only one quantization of a family has these bits; MLX's are named by their bits alone.
SHORT = {"q8": "q8_0", "q6": "q6_k", "ud-q8": "ud-q8_k_xl"} | {
    f"{bits}bit": f"mlx-{bits}bit" for bits in (3, 4, 5, 6, 8)
}
_NO_EXPERTS = re.compile(r"distill", re.IGNORECASE)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([bt])")  # a word of a name: billions or trillions of weights
_SIZED = frozenset({"micro", "nano", "mini", "tiny", "small", "medium", "large", "lite", "ultra", "super"})
_NUMBER, _LETTERS = re.compile(r"\d+(?:\.\d+)?"), re.compile(r"[a-z]+")
PLACEHOLDER = "MODEL"  # in lines to complete, as messages and pages have them
MOST_NAMED, ALIKE = 4, 0.65  # names in a message; letters that a name shares with a known one
SAME_SIZE = 0.85  # of the weights that a name gives
# What names say of training, format and date, behind those that say of dimensions.
_TRAINED = re.compile(
    r"(-(instruct|thinking|reasoning|chat|base|it|hf|gguf|mlx|uncensored|abliterated|heretic|\d{4}))+$"
)
HINT_BITS, MOST_BITS, F32_BITS = 4.5, 16.6, 33.0  # of a weight in a file: an example, the most, the most in 32 bits
FEWEST_BITS = ("ud-iq2_m", "ud-iq2_xxs", "ud-iq1_s")
NEAR_DUPLICATE = 0.9  # two quantizations whose sizes differ by less are as good as one
ESTIMATED, DENSE_ESTIMATED = "estimated", "dense weights estimated"  # codes of notes, and their first words


@dataclass(frozen=True, kw_only=True)
class Quant:
    """The storage types of an expert's families in a quantization.

    down_more: the type of `down` in some layers: `down_more_layers`, else those of `more_bits`.
    dense_gib: the weights outside the routed experts, from a file; else dense_bits: the bits of each.
    estimated, dense_estimated: the basis of estimated bytes that no file or measurement confirms.
    """

    gate_up: str
    down: str
    source: str
    down_more: str = ""
    down_more_layers: str = ""
    dense_gib: float | None = None
    dense_bits: float = 0.0
    estimated: str = ""
    dense_estimated: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class NamedModel:
    """The dimensions of a model's routed experts, its weights outside them, and its quantizations by name.

    aliases: names of models with the same dimensions. moe_layers: the layers with routed experts, if there are others
    in between. gated: whether an expert has a gate. dense_params_b: billions of weights outside the routed experts.
    table_params_b: billions of weights in a table of which a token reads a few rows; not dense weights.
    vocab: tokens of the vocabulary; 0 if no source was found. tied: whether the embeddings are the output matrix too.
    estimated: the reason for dimensions without a source.
    context: the keys of a GGUF header that determine the context's memory, with the source; empty if no source was
        found.
    table_bits: of a weight of that table in every file; 0 if the quantization decides. vision_params_b: billions of
        weights of its vision tower. shared: the width of a layer's shared experts together. dense_width: of the network
        of layers without routed experts. q_rank: of the queries' latent; 0 if they have none.
    graph: what is known of its graph beyond its architecture. drafting: layers that only draft tokens (MTP), which no
    other number here counts. repository: of Hugging Face, that has GGUF files of it.
    """

    title: str
    arch: str
    blocks: int
    experts: int
    top_k: int
    hidden: int
    width: int
    default: str
    source: str
    dense_params_b: float
    dense_source: str
    quants: dict[str, Quant]
    first_moe: int = 0
    moe_layers: str = ""
    fused: bool = False
    gated: bool = True
    aliases: tuple[str, ...] = ()
    table_params_b: float = 0.0
    table_source: str = ""
    vocab: int = 0
    tied: bool = False
    estimated: str = ""
    notes: tuple[str, ...] = field(default=())
    context: dict[str, Any] = field(default_factory=dict)
    graph: Graph = UNKNOWN
    drafting: int = 0
    shared: int = 0
    dense_width: int = 0
    q_rank: int = 0
    vision_params_b: float = 0.0
    table_bits: float = 0.0
    repository: str = ""

    @property
    def layer_numbers(self) -> tuple[int, ...]:
        """The layers with routed experts."""
        if self.moe_layers:
            return tuple(sorted(_numbers(self.moe_layers)))
        return tuple(range(self.first_moe, self.blocks))

    @property
    def routed_params_b(self) -> float:
        """Billions of weights in the routed experts."""
        matrices = 3 if self.gated else 2
        return len(self.layer_numbers) * self.experts * matrices * self.hidden * self.width / 1e9


class _Models(Mapping[str, NamedModel]):
    """The models of a TOML text, each parsed when it is first asked for: all of them take 20 ms."""

    def __init__(self, text: str) -> None:
        recipes, *parts = re.split(r"^(?=\[models\.)", text, flags=re.MULTILINE)
        self._recipes = {name: _quant(table) for name, table in tomllib.loads(recipes)["recipes"].items()}
        texts: dict[str, str] = {}
        for part in parts:
            quoted, plain = re.findall(r'^\[models\.(?:"(.+?)"|([\w-]+))', part)[0]
            texts[quoted or plain] = texts.get(quoted or plain, "") + part
        self._texts, self._parsed = dict(sorted(texts.items())), dict[str, NamedModel]()

    def __getitem__(self, name: str) -> NamedModel:
        if name not in self._parsed:
            table = tomllib.loads(self._texts[name])["models"][name]
            own = {quant: _quant(entry) for quant, entry in table.pop("quants", {}).items()}
            shared = {recipe: self._recipes[recipe] for recipe in table.pop("recipes")}
            lists = {key: tuple(table.get(key, ())) for key in ("aliases", "notes")}
            graph = read_graph(f"named_models.toml: {name}.graph", table.pop("graph")) if "graph" in table else UNKNOWN
            self._parsed[name] = NamedModel(quants={**own, **shared}, graph=graph, **{**table, **lists})
        return self._parsed[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def aliases(self) -> dict[str, str]:
        """The model of each alias."""
        lines = {name: re.search(r"^aliases = .*$", text, re.MULTILINE) for name, text in self._texts.items()}
        return {alias: name for name, line in lines.items() if line for alias in tomllib.loads(line[0])["aliases"]}


@cache
def named_models() -> _Models:
    """The table of named models, by name, in alphabetical order."""
    return _Models(resources.files("flashmoe_sim.geometry").joinpath("named_models.toml").read_text("utf-8"))


@cache
def model_names() -> dict[str, str]:
    """The name of a known model by each of its names: its own and its aliases."""
    models = named_models()
    return models.aliases() | {name: name for name in models}


def is_name(spec: str) -> bool:
    """Whether the part of `spec` before a colon names a known model."""
    return bool(_known(spec.partition(":")[0].lower()))


def _known(name: str) -> str:
    """The model of a name in small letters, with or without words that say nothing of dimensions; or empty."""
    names = model_names()
    return names.get(name) or names.get(_TRAINED.sub("", name), "")


def meant(text: str) -> str:
    """The name of the named model that a text means, or empty.

    A name counts if the text's words begin with its words (`Qwen3-30B-A3B-Instruct-2507`), or the other way round
    (`Qwen3-30B`) for one known name only.
    """
    names, words = model_names(), _words(text)
    if not words or _NO_EXPERTS.search(text):
        return ""
    begun = [name for name in names if words[: len(_words(name))] == _words(name)]
    if begun:
        return names[max(begun, key=lambda name: len(_words(name)))]
    begins = {names[name] for name in names if _words(name)[: len(words)] == words}
    return begins.pop() if len(begins) == 1 else ""


def of_size(name: str, words: Iterable[str]) -> bool:
    """Whether each size among the words, such as 8b, is a known model's own."""
    model = named_models()[name]
    weights_b = model.routed_params_b + model.dense_params_b + model.table_params_b
    sizes = [_SIZE.fullmatch(word) for word in words]
    given = [float(size[1]) * (1000 if size[2] == "t" else 1) for size in sizes if size]
    return all(min(one, weights_b) >= SAME_SIZE * max(one, weights_b) for one in given)


def name_in(text: str) -> str:
    """The name of the named model that a text means. Raises BadInput if it means none."""
    if name := meant(text):
        return name
    if not _words(text) or _NO_EXPERTS.search(text):
        raise UnknownName(f"model {shown(text)}: no mixture of experts is named so")
    near = "".join(f"did you mean {one!r}? " for one in _alike(text))
    raise UnknownName(f"unknown model {shown(text)}; {near}`sim model list` lists all")


def named_model(spec: str, *, uploader: str = "", asked: str = "") -> ModelGeometry:
    """The geometry of `name` at its default quantization, or of `name:quantization`; case does not matter.

    An alias returns the model with the same dimensions, under that model's name; so does a name with words like
    `Instruct` or `GGUF` behind it.
    uploader: who published the files, in small letters. asked: the model's name as it was written, if `spec` has the
    table's instead.

    Raises BadInput, listing the known ones, for an unknown model or quantization.
    """
    name, colon, quant_name = spec.lower().partition(":")
    models = named_models()
    found = _known(name)
    if not found:
        raise unknown_model(name, spec)
    asked = asked or name
    name, model = found, models[found]
    quant_name = SHORT.get(quant_name, quant_name) if colon else model.default
    if quant_name in model.quants and not uploader:
        return of_named(model, quant_name, name=f"{name}:{quant_name}")
    from flashmoe_sim.geometry import mixes, recipes  # which read the table of recipes

    if quant_name not in model.quants:
        quant_name = mixes.meant_by(mixes.tidy(quant_name), model.arch, asked)
    if not recipes.known(model, quant_name, uploader, asked=asked):
        raise _unknown_quantization(name, quant_name)
    return recipes.geometry_of(model, quant_name, uploader, name=f"{name}:{quant_name}", asked=asked)


def of_named(model: NamedModel, quant_name: str, *, name: str) -> ModelGeometry:
    """The geometry of dimensions in one of their quantizations."""
    quant = model.quants[quant_name]
    layers = {number: _layer(model, quant, number) for number in model.layer_numbers}
    found = of_weights(
        model, layers, dense_bytes=_dense_bytes(model, quant), name=name, quant=quant_name, format=format_of(quant)
    )
    return replace(
        found,
        source=f"{model.title}: {model.source}. {quant_name}: {quant.source}",
        notes=(
            *model.notes,
            *_estimated(ESTIMATED, "; ".join(filter(None, (model.estimated, quant.estimated)))),
            *quant.notes,
            *table_notes(model),
            *_dense_notes(model, quant),
        ),
        embedding_bytes=_embedding_bytes(model, quant),
        unread_bytes=_unread_bytes(model, quant, layers),
    )


def of_weights(
    model: NamedModel, layers: Mapping[int, LayerGeometry], *, dense_bytes: int, name: str, quant: str, format: str
) -> ModelGeometry:
    """The geometry of dimensions whose weights have these bytes; without source, notes and embeddings."""
    scales = True if quant.startswith("nvfp4") else None
    return ModelGeometry(
        name=name,
        layers=layers,
        top_k=model.top_k,
        source="",
        arch=model.arch,
        quant=quant,
        dense_bytes=dense_bytes,
        attention=attention_of(model.arch, _header_keys(model)) if model.context else None,
        widths=_widths(model),
        graph=graph_of(model.arch, model.graph.narrowed(Graph(scales=scales))),
        width=model.width,
        format=format,
        drafting_layers=model.drafting,
        dense_weights=round(model.dense_params_b * 1e9),
    )


def unknown_model(name: str, spec: str = "") -> UnknownName:
    """The error for a name of no known model: those that begin so or are spelt nearly so, if they have its sizes.

    spec: the whole text, of which Ollama's tag may belong to the name.
    """
    listed = "`sim model list` lists all"
    if spec == PLACEHOLDER:
        return UnknownName(f"{PLACEHOLDER} stands for a model; give a name ({listed}), a repository or a GGUF file")
    begun = sorted({model for known, model in model_names().items() if name and _begins(known, name)})
    likely = meant(spec.replace(":", "-"))  # Ollama's gpt-oss:20b is gpt-oss-20b
    near = [likely] if likely and _has_numbers(spec, likely) else begun or _alike(name)
    if near:
        few, more = [repr(one) for one in near[:MOST_NAMED]], len(near) > MOST_NAMED
        ends = f"{', '.join(few[:-1])} or {few[-1]}" if len(few) > 1 and not more else ", ".join(few)
        said = f"did you mean {ends}{', ...' if more else ''}? {listed}"
        return UnknownName(f"unknown model {name!r}; {said}; or give its config.json or a GGUF file")
    return UnknownName(
        f"unknown model {shown(name, 90)}: dense, or a mixture of experts that is not known here; {listed} that are "
        "known; or give its config.json or a GGUF file"
    )


def _begins(known: str, name: str) -> bool:
    """Whether a known name begins so: llama-4-scout with llama4."""
    return re.sub(r"[-_ ]", "", known).startswith(re.sub(r"[-_ ]", "", name) or known)


def _alike(name: str) -> list[str]:
    """The known name that is spelt nearly so, if it has the same sizes and versions, and nearly the same first word."""

    def first(text: str) -> str:
        return "".join(_LETTERS.findall(text.lower())[:1])

    def near(names: Iterable[str]) -> list[str]:
        fitting = [known for known in names if _has_numbers(name, known)]
        same = get_close_matches(first(name), {*map(first, fitting)}, n=len(fitting) or 1, cutoff=ALIKE)
        return get_close_matches(name.lower(), [one for one in fitting if first(one) in same], n=1, cutoff=ALIKE)

    return near(named_models()) or near(model_names())


def _has_numbers(text: str, known: str) -> bool:
    """Whether a text has no other numbers, words of size or weights than a known model: qwen3.5-9b is not near any."""
    words = _words(text)
    others = [word for word in words if not _SIZE.fullmatch(word)]
    same = set(_NUMBER.findall(" ".join(others))) <= set(_NUMBER.findall(known))
    same = same and _SIZED & set(words) <= set(_words(known))
    return same and of_size(model_names().get(known, known), words)


def smaller(model: ModelGeometry) -> list[str]:
    """Smaller quantizations of a named model, as `name:quantization`, the largest first; none for any other model.

    They are in the model's own format, and each takes at most NEAR_DUPLICATE of the bytes of the one before.
    """
    found, last = [], file_bytes(model)
    for other in quantizations(model):
        if other.format == model.format and file_bytes(other) <= NEAR_DUPLICATE * last:
            found.append(other.name)
            last = file_bytes(other)
    return found


def fewest_bits(model: ModelGeometry) -> list[str]:
    """GGUF quantizations of about two bits and fewer, smaller than any that the table lists, as `smaller` gives them.

    Their bytes come from recipes; whether somebody publishes such a file of this model is not known.
    """
    listed = smaller(model)
    found, last = [], file_bytes(named_model(listed[-1]) if listed else model)
    for other in quantizations(model, FEWEST_BITS) if model.format == "gguf" else []:
        if other.quant in FEWEST_BITS and not is_listed(other.name) and file_bytes(other) <= NEAR_DUPLICATE * last:
            found.append(other.name)
            last = file_bytes(other)
    return found


def is_listed(spec: str) -> bool:
    """Whether the table lists a quantization, `name:quantization`, rather than a recipe giving its bytes."""
    name, _, quant_name = spec.partition(":")
    return name in named_models() and quant_name in named_models()[name].quants


def quantizations(
    model: ModelGeometry, others: Iterable[str] = (), *, only: Container[str] | None = None
) -> list[ModelGeometry]:
    """A named model in the quantizations that the table lists, the largest first; none for any other model.

    others: names of more, of which those count that have a recipe. only: the names that are wanted; by default all.
    """
    from flashmoe_sim.geometry.recipes import known

    name, _, quant_name = model.name.partition(":")
    entry = named_models().get(name)
    if model.gguf or entry is None or quant_name != model.quant:
        return []
    names = [*entry.quants, *(one for one in others if one not in entry.quants and known(entry, one))]
    names = [one for one in names if only is None or one in only]
    return sorted((named_model(f"{name}:{one}") for one in names), key=file_bytes, reverse=True)


def nearest(model: ModelGeometry, others: Sequence[ModelGeometry]) -> ModelGeometry | None:
    """The other file that is nearest to the model's in size, as a ratio; None if there is none."""
    return min(others, key=lambda one: abs(log(file_bytes(one) / file_bytes(model))), default=None)


def _unknown_quantization(name: str, asked: str) -> UnknownName:
    """The error for a quantization without a recipe. It is never taken for another one, unless only its separators
    differ: the nearest by bits are of another size and write another text."""
    from flashmoe_sim.geometry.recipes import nearest_by_bits

    model = named_models()[name]
    kind = f"unknown quantization of {name} {asked!r}"
    if not of_size(name, [asked]):
        return UnknownName(
            f"{kind}: that is the size of another model, which may have no experts; `sim model list` lists all"
        )
    if same := [known for known in (*model.quants, *MIXES) if _letters(known) == _letters(asked)]:
        return UnknownName(f"{kind}; did you mean {same[0]!r}?")
    give = f"give its size, such as {name}@{size_hint(model)}, or its GGUF file as --model"
    if (found := _bits_asked(asked)) is None:
        return UnknownName(f"{kind}; {give}; known, among others: {', '.join(sorted(model.quants))}")
    file, bits = found
    near = [f"{one.quant} ({size(file_bytes(one))})" for one in nearest_by_bits(model, bits, file)]
    others = f"; the nearest by bits: {' and '.join(near)}" if near else ""
    return UnknownName(f"{kind}: no recipe says its size; {give}{others}")


def repository_of(model: ModelGeometry) -> str:
    """Where GGUF files of a known model are, a repository; empty if none is known, and for another of its shape."""
    known = named_models().get(model.base_name)
    another = any(code_of(note) == TAKEN for note in model.notes)
    return "" if known is None or another else known.repository


def file_weights_b(model: NamedModel) -> float:
    """Billions of weights that a file may hold."""
    return model.routed_params_b + model.dense_params_b + model.table_params_b + model.vision_params_b


def size_hint(model: NamedModel) -> str:
    """A size that a file of the model has, at 4.5 bits a weight, as an example for messages: 17GB."""
    return f"{max(round(file_weights_b(model) * HINT_BITS / 8), 1)}GB"


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name)


def _bits_asked(name: str) -> tuple[str, float] | None:
    """The format of files and the bits of a weight, from the name of a quantization; None for any other word."""
    plain = name.removeprefix("ud-")
    if known := BY_NAME.get(plain.upper()):
        return _format_of(known.name), 8 * known.block_bytes / known.block_weights
    for pattern, file, scales in _BITS:
        if found := re.search(pattern, plain):
            return file, float(next(filter(None, found.groups()))) + scales
    return None


def file_bytes(model: ModelGeometry) -> int:
    """The bytes of a model's files."""
    return model.routed_bytes + (model.dense_bytes or 0) + model.unread_bytes


def _types(quant: Quant) -> set[str]:
    """The storage types of its experts."""
    return {name for name in (quant.gate_up, quant.down, quant.down_more) if name}


def format_of(quant: Quant) -> str:
    """The format of its files: gguf unless a storage type is another format's."""
    return next((found for name in _types(quant) if (found := _format_of(name)) != "gguf"), "gguf")


def _format_of(type_name: str) -> str:
    return next((_FORMATS[start] for start in _FORMATS if type_name.startswith(start)), "gguf")


def _header_keys(model: NamedModel) -> dict[str, Any]:
    """The keys for the context in a GGUF file of the model."""
    return {"block_count": model.blocks, "embedding_length": model.hidden} | _dotted(model.context)


def _dotted(table: Mapping[str, Any]) -> dict[str, Any]:
    """A table of tables as one, with names like attention.head_count."""
    found: dict[str, Any] = {}
    for name, value in table.items():
        found |= (
            {f"{name}.{end}": each for end, each in _dotted(value).items()}
            if isinstance(value, dict)
            else {name: value}
        )
    return found


def _widths(model: NamedModel) -> GraphWidths | None:
    if not model.vocab or model.arch in OTHER_GRAPHS:
        return None
    keys = _header_keys(model)
    latent_key = keys.get("attention.key_length_mla", 0)
    heads = keys["attention.head_count"] if latent_key else 0
    return GraphWidths(model.vocab, model.hidden, model.width, heads, latent_key)


def _dense_bytes(model: NamedModel, quant: Quant) -> int:
    if quant.dense_gib is not None:
        return round(quant.dense_gib * 2**30)
    return round(model.dense_params_b * 1e9 * quant.dense_bits / 8)


def _unread_bytes(model: NamedModel, quant: Quant, layers: Mapping[int, LayerGeometry]) -> int:
    """Bytes of its files that decoding does not read, with the bits of the other dense weights on average."""
    format, found = format_of(quant), 0.0
    share = _dense_bytes(model, quant) / (model.dense_params_b * 1e9)
    if model.table_params_b:
        found += model.table_params_b * 1e9 * (model.table_bits / 8 or share)
    if format == "gguf" and model.arch in WITH_DRAFTING:
        last = layers[max(layers)]
        found += model.drafting * last.n_experts * last.expert_bytes
        found += sum(tensor.weights for tensor in drafting(model)) * share
    return round(found) + (round(model.vision_params_b * 1e9) * 2 if format == "mlx" else 0)


def _embedding_bytes(model: NamedModel, quant: Quant) -> int:
    """The embeddings' bytes, with as many bits as the other dense weights have on average."""
    share = 0.0 if model.tied else model.vocab * model.hidden / (model.dense_params_b * 1e9)
    return round(_dense_bytes(model, quant) * share)


def _dense_notes(model: NamedModel, quant: Quant) -> list[str]:
    if quant.dense_gib is not None:
        return _estimated(DENSE_ESTIMATED, quant.dense_estimated)
    weights = f"{model.dense_params_b:g} billion of {quant.dense_bits:g} bits"
    return _estimated(DENSE_ESTIMATED, f"{weights} ({model.dense_source})")


def table_notes(model: NamedModel) -> list[str]:
    """A note on a table of which each token reads only a few rows."""
    if not model.table_params_b:
        return []
    return [
        f"{model.table_params_b:g} billion weights more are looked up, not read for each token: {model.table_source}"
    ]


def _estimated(code: str, why: str) -> list[str]:
    return [Note(code, f"{code}: {why}")] if why else []


def _layer(model: NamedModel, quant: Quant, number: int) -> LayerGeometry:
    listed, down = quant.down_more_layers, quant.down
    if quant.down_more and (number in _numbers(listed) if listed else more_bits(number, model.blocks)):
        down = quant.down_more
    up_bytes = _matrix_bytes(quant.gate_up, model.hidden, model.width)
    families = {GATE_UP: 2 * up_bytes} if model.fused else {"ffn_gate_exps": up_bytes, "ffn_up_exps": up_bytes}
    if not model.gated:
        del families["ffn_gate_exps"]
    return LayerGeometry(model.experts, {**families, "ffn_down_exps": _matrix_bytes(down, model.width, model.hidden)})


def _matrix_bytes(type_name: str, row: int, rows: int) -> int:
    """Bytes of a matrix with `rows` rows of `row` weights."""
    storage = _TYPES[type_name]
    if row % storage.block_weights:
        storage = _TYPES[FALLBACK[type_name]]
    return tensor_bytes(storage, (row, rows))


@cache
def _numbers(text: str) -> frozenset[int]:
    """The layer numbers of a text like `0-5, 8, 11`."""
    numbers: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    return frozenset(numbers)


def _quant(table: dict[str, object]) -> Quant:
    notes = table.get("notes", ())
    return Quant(**{**table, "notes": tuple(notes)})  # type: ignore[arg-type]


def _words(name: str) -> list[str]:
    """The words of a model's name, without its publisher or folder, and without .gguf."""
    last = re.split(r"[/\\]", name.lower().removesuffix(".gguf"))[-1]
    return [word for word in re.split(r"[-_ ]+", last) if word]
