"""A model in GGUF files: the routed experts of each layer and the bytes of everything else."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import NamedTuple

from flashmoe_sim.geometry.attention_keys import attention_of
from flashmoe_sim.geometry.compute_buffers import OTHER_GRAPHS, GraphWidths
from flashmoe_sim.geometry.families import GATE_UP, MAX_EXPERTS, MAX_LAYER, missing_notes, ordered, ranges
from flashmoe_sim.geometry.gguf_header import ENOUGH_BYTES, Header, Tensor, Value, read_header
from flashmoe_sim.geometry.graph import Graph, graph_of
from flashmoe_sim.geometry.model import Attention, LayerGeometry, ModelGeometry
from flashmoe_sim.io.errors import BadInput, Conflict, Malformed, Missing, Unsupported, shortened, shown
from flashmoe_sim.io.notes import CUT_OFF, Note

MOST_NAME = 200  # letters
MOST_LATENT = 2**16  # a longer key of a head is not believed
CLAMPED_ABOVE = 1e-6  # llama.cpp ignores a lower limit: src/llama-graph.cpp:2022-2024@0eca4d490
_EXPERTS = re.compile(r"blk\.(0|[1-9]\d{0,4})\.(ffn_(?:gate|up|gate_up|down)_exps)\.weight")
_BESIDE = re.compile(r"blk\.\d+\.ffn_(?:gate|up|gate_up|down)_exps\.(bias|scale)")


def read_gguf(path: str | Path, *, cut: bool = False) -> ModelGeometry:
    """Read the geometry of a model from its GGUF file, or from any file of a split model.

    Only headers are read. Everything except weights of routed experts counts as dense: attention, embeddings,
    routers, shared experts, biases.
    cut: accept files whose weights are cut off, such as the first megabytes of a download.
    Raises BadInput for a damaged or incomplete model and for one without routed experts.
    """
    path = Path(path)
    files = read_files(path, cut=cut)
    keys, tensors = _merged(files)
    expert_bytes: dict[int, dict[str, int]] = {}
    n_experts: dict[int, int] = {}
    quants: Counter[str] = Counter()
    beside = [tensor for name, tensor in tensors.items() if not _EXPERTS.fullmatch(name)]
    dense = [tensor.bytes for tensor in beside]
    for name, number, family, tensor in _expert_tensors(tensors):
        size, storage = _checked(path, name, number, tensor)
        n_experts.setdefault(number, tensor.ne[2])
        if n_experts[number] != tensor.ne[2]:
            raise Malformed(
                f"{path}: tensor {shown(name)} holds {tensor.ne[2]} experts, but layer {number} has "
                f"{n_experts[number]} in another tensor; expected one number for the layer",
                advice="download the file again",
            )
        expert_bytes.setdefault(number, {})[family] = size // tensor.ne[2]
        quants[storage] += size
    arch = shortened(str(keys.get("general.architecture", "")))
    if not expert_bytes:
        raise _no_experts(path, arch, keys)
    layers = {
        number: LayerGeometry(n_experts[number], ordered(expert_bytes[number])) for number in sorted(expert_bytes)
    }
    top_k, notes = _top_k(path, arch, keys, layers)
    notes = [*missing_notes(layers, first_layer=_leading_dense(arch, keys)), *notes]
    if drafting := _drafting(arch, keys, layers):  # they are in the file, but ordinary decoding does not use them
        notes.append(f"layers {ranges(drafting)} only draft tokens ahead; they are counted here like the others")
    attention, unread = _attention(arch, files[0].header)
    notes += [*unread, *_cut_notes(files)]
    widths = {tensor.ne[0] for _, _, family, tensor in _expert_tensors(tensors) if family == "ffn_down_exps"}
    dense_bytes = sum(size for size in dense if size is not None)
    if None in dense:
        notes.append(f"{dense.count(None)} dense tensors have a type unknown to this program: dense bytes not known")
    return ModelGeometry(
        name=shortened(str(keys.get("general.name") or stem(path)), MOST_NAME),
        layers=layers,
        top_k=top_k,
        source=f"GGUF header {path}",
        arch=arch,
        quant="+".join(name for name, _ in quants.most_common()),
        dense_bytes=None if None in dense else dense_bytes,
        notes=tuple(notes),
        attention=attention,
        gguf=str(files[0].path),
        widths=_widths(arch, keys, tensors),
        embedding_bytes=_embedding_bytes(tensors),
        graph=graph_of(arch, _graph(arch, files[0].header, tensors)),
        width=widths.pop() if len(widths) == 1 else 0,
        format="gguf",
        drafting_layers=len(_drafting(arch, keys, layers)),
        dense_weights=sum(prod(tensor.ne) for tensor in beside),
    )


def weights_of_file(path: Path) -> tuple[int, int, int]:
    """Of any model in a GGUF file, with routed experts or without: bytes that a token reads, layers, and all bytes.

    Raises BadInput for a damaged or incomplete model.
    """
    keys, tensors = _merged(read_files(path, cut=True))
    arch = str(keys.get("general.architecture", ""))
    blocks, used, of = (
        count if isinstance(count := keys.get(f"{arch}.{name}"), int) else 0
        for name in ("block_count", "expert_used_count", "expert_count")
    )
    if unknown := [name for name, tensor in tensors.items() if tensor.bytes is None]:
        raise Unsupported(f"{path}: tensor {shown(unknown[0])} has a type that this program does not know")
    kept = sum(tensor.bytes or 0 for tensor in tensors.values())
    routed = sum(tensor.bytes or 0 for *_, tensor in _expert_tensors(tensors))
    idle = routed - routed * used // of if 0 < used <= of else 0
    return kept - _embedding_bytes(tensors) - idle, blocks, kept


def _graph(arch: str, header: Header, tensors: Mapping[str, Tensor]) -> Graph:
    """What the file says of its graph: a missing key for groups or a clamp means none, as in llama.cpp.

    Source: src/llama-hparams.h:94, src/llama-model.cpp:1061, 1110, 1370-1377@0eca4d490.
    """
    families = {family for _, _, family, _ in _expert_tensors(tensors)}
    beside = {match[1] for name in tensors if (match := _BESIDE.fullmatch(name))}
    groups = header.keys.get(f"{arch}.expert_group_count", 0)
    limit = f"{arch}.swiglu_clamp_exp"
    limits = header.lists.get(limit, (header.keys.get(limit, 0),))
    return Graph(
        gated=bool(families & {"ffn_gate_exps", GATE_UP}),
        biases="bias" in beside,
        fused=GATE_UP in families,
        groups=groups if isinstance(groups, int) else None,
        scales="scale" in beside,
        clamped=any(isinstance(value, int | float) and value > CLAMPED_ABOVE for value in limits),
    )


def _attention(arch: str, header: Header) -> tuple[Attention | None, list[str]]:
    """The memory of the context, if the header determines it, and what the user should know about it."""
    begin = f"{arch}."
    keys = {name.removeprefix(begin): value for name, value in (*header.keys.items(), *header.lists.items())}
    try:
        return attention_of(arch, keys), []
    except BadInput as error:
        return None, [f"what the context takes is not known: {arch}.{error}"]


def _widths(arch: str, keys: Mapping[str, Value], tensors: Mapping[str, Tensor]) -> GraphWidths | None:
    """The widths of the graph; None if a tensor that has them is missing or has other dimensions."""
    embedding = tensors.get("token_embd.weight")
    down = next((tensor for _, _, family, tensor in _expert_tensors(tensors) if family == "ffn_down_exps"), None)
    if embedding is None or down is None or len(embedding.ne) != 2 or arch in OTHER_GRAPHS:
        return None
    latent_key, heads = (keys.get(f"{arch}.attention.{name}", 0) for name in ("key_length_mla", "head_count"))
    if not isinstance(latent_key, int) or not isinstance(heads, int) or not 0 < latent_key < MOST_LATENT:
        latent_key = heads = 0
    hidden, vocab = embedding.ne
    return GraphWidths(vocab, hidden, down.ne[0], heads, latent_key)


def _embedding_bytes(tensors: Mapping[str, Tensor]) -> int:
    """Bytes of the tokens' embeddings; 0 if there is no other output matrix, which then is on the GPU."""
    embedding = tensors.get("token_embd.weight")
    return 0 if embedding is None or "output.weight" not in tensors else embedding.bytes or 0


def _merged(files: Sequence[GgufFile]) -> tuple[Mapping[str, Value], Mapping[str, Tensor]]:
    """The keys of the first file and the tensors of all files of the model."""
    tensors = {name: tensor for file in files for name, tensor in file.header.tensors.items()}
    return files[0].header.keys, tensors


def _expert_tensors(tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, int, str, Tensor]]:
    for name, tensor in tensors.items():
        if match := _EXPERTS.fullmatch(name):
            yield name, int(match[1]), match[2], tensor


def _checked(path: Path, name: str, number: int, tensor: Tensor) -> tuple[int, str]:
    """Bytes and storage type of an expert tensor."""
    if len(tensor.ne) != 3 or tensor.ne[2] > MAX_EXPERTS or number > MAX_LAYER:
        raise Malformed(
            f"{path}: tensor {shown(name)} has dimensions {list(tensor.ne)}; expected three, the last at most "
            f"{MAX_EXPERTS} experts, and a layer up to {MAX_LAYER}",
            advice="the file is damaged",
        )
    if tensor.storage is None or tensor.bytes is None:
        raise Unsupported(
            f"{path}: tensor {shown(name)} has ggml type {tensor.type_number}, which this program does not know",
            advice="give the model's sidecar manifest instead",
        )
    return tensor.bytes, tensor.storage.name


def _no_experts(path: Path, arch: str, keys: Mapping[str, Value]) -> BadInput:
    if keys.get(f"{arch}.expert_count"):
        count = shown(keys[f"{arch}.expert_count"])
        return Unsupported(
            f"{path}: {arch}.expert_count is {count}, but there are no ffn_*_exps tensors",
            advice="the experts are stored one by one, an old layout: convert the model again",
        )
    return Unsupported(
        f"{path}: not a mixture-of-experts model (no ffn_*_exps tensors; architecture {arch or 'not given'})",
        advice="give a model with routed experts",
    )


def _top_k(
    path: Path, arch: str, keys: Mapping[str, Value], layers: Mapping[int, LayerGeometry]
) -> tuple[int, list[str]]:
    """Experts per token, and what the user should know about it."""
    used = keys.get(f"{arch}.expert_used_count")
    most = max(layer.n_experts for layer in layers.values())
    if used is None:
        return 0, [f"{arch}.expert_used_count is missing, so the experts a token uses are not known; give --topk"]
    if not isinstance(used, int) or not 1 <= used <= most:
        raise Malformed(
            f"{path}: {arch}.expert_used_count is {shown(used)}; expected 1 to {most}", advice="the file is damaged"
        )
    count = keys.get(f"{arch}.expert_count")
    if count is not None and {count} != {layer.n_experts for layer in layers.values()}:
        return used, [f"{arch}.expert_count is {shown(count)}; the tensors' own expert counts are used"]
    return used, []


def _leading_dense(arch: str, keys: Mapping[str, Value]) -> int:
    first = keys.get(f"{arch}.leading_dense_block_count", 0)
    return first if isinstance(first, int) else 0


def _cut_notes(files: Sequence[GgufFile]) -> list[str]:
    """A note if weights are missing: nothing here needs them, but the engine will."""
    count = sum(file.header.end > file.header.size for file in files)
    where = f" in {count} of its {len(files)} files" if len(files) > 1 else ""
    return [Note(CUT_OFF, f"the weights{where} are cut off: enough to simulate, not to run")] if count else []


def _drafting(arch: str, keys: Mapping[str, Value], layers: Mapping[int, LayerGeometry]) -> list[int]:
    """The layers that only draft tokens."""
    drafting = keys.get(f"{arch}.nextn_predict_layers", 0)
    blocks = keys.get(f"{arch}.block_count", 0)
    if not isinstance(drafting, int) or not isinstance(blocks, int):
        return []
    return [number for number in layers if number >= blocks - drafting > 0]


MOST_NAMED = 4
SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")


class GgufFile(NamedTuple):
    """One file of a model, and its header."""

    path: Path
    header: Header


def read_files(path: Path, *, cut: bool = False) -> tuple[GgufFile, ...]:
    """The headers of all files of a model in order, given any one of them; the first has the model's keys.

    cut: accept files whose weights are cut off.
    Raises BadInput for a damaged file, a file that is missing or from another model, and a duplicate tensor.
    """
    files = tuple(_shards(path, read_header(path)))
    for file in files if not cut else ():
        if file.header.end > file.header.size:
            found = f"{file.path}: at byte {file.header.size}: the file ends, but its tensors reach to byte"
            raise Malformed(f"{found} {file.header.end}", advice="download the rest of it")
    names: set[str] = set()
    for file in files:
        if twice := names & file.header.tensors.keys():
            found = f"{path}: tensor {shown(min(twice))} is in two of its files"
            raise Malformed(found, advice="download the model again")
        names.update(file.header.tensors)
    promised = files[0].header.keys.get("split.tensors.count")
    if len(files) > 1 and isinstance(promised, int) and promised != len(names):
        raise Malformed(
            f"{path}: {len(names)} tensors in its {len(files)} files, but split.tensors.count is {promised}",
            advice="download the model again",
        )
    return files


def stem(path: Path) -> str:
    """The name of a model's file without the suffix of a split."""
    named = SHARD.fullmatch(path.name)
    return named[1] if named else path.stem


def _shards(path: Path, given: Header) -> Iterator[GgufFile]:
    """All files of a split model, in order."""
    named = SHARD.fullmatch(path.name)
    count = int(named[3]) if named else 1
    _check_split(path, given, int(named[2]) if named else 1, count)
    names = [f"{named[1]}-{number:05}-of-{named[3]}.gguf" for number in range(1, count + 1)] if named else [path.name]
    shards = [path.with_name(name) for name in names]
    if absent := [shard.name for shard in shards if not shard.exists()]:
        missing = ", ".join(absent[:MOST_NAMED]) + (", ..." if len(absent) > MOST_NAMED else "")
        raise Missing(
            f"{path}: {len(absent)} of the model's {count} files are missing ({missing}), and each file lists only its "
            "own tensors",
            advice=f"put them beside it; of each, the first {ENOUGH_BYTES >> 20} MiB are enough for `--model`",
        )
    for number, shard in enumerate(shards, 1):
        header = given if shard == path else read_header(shard)
        _check_split(shard, header, number, count)
        yield GgufFile(shard, header)


def _check_split(path: Path, header: Header, number: int, count: int) -> None:
    """Compare the keys of a split file, which a whole file lacks, with its name."""
    split_count = header.keys.get("split.count", 0) or count
    split_number = header.keys.get("split.no", number - 1)
    if split_count != count or split_number != number - 1 or not 1 <= number <= count:
        raise Conflict(
            f"{path}: split.no is {shown(split_number)} and split.count {shown(split_count)}, but by its name it is "
            f"file {number} of {count}, so {number - 1} and {count} are expected",
            advice="give the files the names they were published with",
        )
