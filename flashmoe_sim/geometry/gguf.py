"""A model in GGUF files: the routed experts of each layer and the bytes of everything else."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from flashmoe_sim.errors import BadInput
from flashmoe_sim.geometry.families import MAX_EXPERTS, MAX_LAYER, missing_notes, ordered, ranges
from flashmoe_sim.geometry.gguf_header import Header, Tensor, Value, read_header
from flashmoe_sim.geometry.model import LayerGeometry, ModelGeometry

_EXPERTS = re.compile(r"blk\.(0|[1-9]\d{0,4})\.(ffn_(?:gate|up|gate_up|down)_exps)\.weight")
_SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")


def read_gguf(path: str | Path) -> ModelGeometry:
    """Read the geometry of a model from its GGUF file, or from any one of the files it is split into.

    Only headers are read. Everything that is not the weight of a routed expert counts as dense: attention, embeddings,
    routers, shared experts, biases.
    Raises BadInput for a damaged or incomplete model and for one without routed experts.
    """
    path = Path(path)
    keys, tensors = _read_all(path)
    expert_bytes: dict[int, dict[str, int]] = {}
    n_experts: dict[int, int] = {}
    quants: Counter[str] = Counter()
    dense = [tensor.bytes for name, tensor in tensors.items() if not _EXPERTS.fullmatch(name)]
    for name, number, family, tensor in _expert_tensors(tensors):
        size, storage = _checked(path, name, number, tensor)
        n_experts.setdefault(number, tensor.ne[2])
        if n_experts[number] != tensor.ne[2]:
            raise BadInput(
                f"{path}: tensor {name!r} holds {tensor.ne[2]} experts, where layer {number} has {n_experts[number]} "
                "in another tensor; expected one number for the layer; download the file again"
            )
        expert_bytes.setdefault(number, {})[family] = size // tensor.ne[2]
        quants[storage] += size
    arch = str(keys.get("general.architecture", ""))
    if not expert_bytes:
        raise _no_experts(path, arch, keys)
    layers = {
        number: LayerGeometry(n_experts[number], ordered(expert_bytes[number])) for number in sorted(expert_bytes)
    }
    top_k, notes = _top_k(path, arch, keys, layers)
    notes = [*missing_notes(layers, first_layer=_leading_dense(arch, keys)), *notes, *_mtp_notes(arch, keys, layers)]
    dense_bytes = sum(size for size in dense if size is not None)
    if None in dense:
        notes.append(f"{dense.count(None)} dense tensors have a type unknown to this program: dense bytes not known")
    return ModelGeometry(
        name=str(keys.get("general.name") or _stem(path)),
        layers=layers,
        top_k=top_k,
        source=f"GGUF header {path}",
        arch=arch,
        quant="+".join(name for name, _ in quants.most_common()),
        dense_bytes=None if None in dense else dense_bytes,
        notes=tuple(notes),
    )


def _read_all(path: Path) -> tuple[Mapping[str, Value], Mapping[str, Tensor]]:
    """Keys of the first file and tensors of all the files that belong together."""
    headers = list(_shards(path, read_header(path)))
    keys = headers[0].keys
    tensors: dict[str, Tensor] = {}
    for header in headers:
        if twice := tensors.keys() & header.tensors.keys():
            raise BadInput(f"{path}: tensor {min(twice)!r} is in two of its files; download the model again")
        tensors.update(header.tensors)
    promised = keys.get("split.tensors.count")
    if len(headers) > 1 and isinstance(promised, int) and promised != len(tensors):
        raise BadInput(
            f"{path}: {len(tensors)} tensors in its {len(headers)} files, but split.tensors.count is {promised}; "
            "download the model again"
        )
    return keys, tensors


def _shards(path: Path, given: Header) -> Iterator[Header]:
    """The headers of all files of a split model, in order."""
    named = _SHARD.fullmatch(path.name)
    count = int(named[3]) if named else 1
    _check_split(path, given, int(named[2]) if named else 1, count)
    for number in range(1, count + 1):
        shard = path.with_name(f"{named[1]}-{number:05}-of-{named[3]}.gguf") if named else path
        if shard == path:
            yield given
            continue
        if not shard.exists():
            raise BadInput(f"{shard}: no such file, but {path.name} is one of {count}; download it to the same folder")
        header = read_header(shard)
        _check_split(shard, header, number, count)
        yield header


def _check_split(path: Path, header: Header, number: int, count: int) -> None:
    """Compare the keys of a split file (absent from a whole one) with its name."""
    said_count = header.keys.get("split.count", 0) or count
    said_number = header.keys.get("split.no", number - 1)
    if said_count != count or said_number != number - 1 or not 1 <= number <= count:
        raise BadInput(
            f"{path}: split.no is {said_number} and split.count {said_count}, but by its name it is file {number} of "
            f"{count}, so {number - 1} and {count} are expected; give the files the names they were published with"
        )


def _expert_tensors(tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, int, str, Tensor]]:
    for name, tensor in tensors.items():
        if match := _EXPERTS.fullmatch(name):
            yield name, int(match[1]), match[2], tensor


def _checked(path: Path, name: str, number: int, tensor: Tensor) -> tuple[int, str]:
    """Bytes and storage type of an expert tensor."""
    if len(tensor.ne) != 3 or tensor.ne[2] > MAX_EXPERTS or number > MAX_LAYER:
        raise BadInput(
            f"{path}: tensor {name!r} has dimensions {list(tensor.ne)}; expected three, the last at most "
            f"{MAX_EXPERTS} experts, and a layer up to {MAX_LAYER}; the file is damaged"
        )
    if tensor.storage is None or tensor.bytes is None:
        raise BadInput(
            f"{path}: tensor {name!r} has ggml type {tensor.type_number}, which this program does not know; "
            "give the model's sidecar manifest instead"
        )
    return tensor.bytes, tensor.storage.name


def _no_experts(path: Path, arch: str, keys: Mapping[str, Value]) -> BadInput:
    if keys.get(f"{arch}.expert_count"):
        return BadInput(
            f"{path}: {arch}.expert_count is {keys[f'{arch}.expert_count']}, but there are no ffn_*_exps tensors; "
            "the experts are stored one by one, an old layout: convert the model again"
        )
    return BadInput(
        f"{path}: not a mixture-of-experts model (no ffn_*_exps tensors; architecture {arch or 'not given'}); "
        "give a model with routed experts"
    )


def _top_k(
    path: Path, arch: str, keys: Mapping[str, Value], layers: Mapping[int, LayerGeometry]
) -> tuple[int, list[str]]:
    """Experts that a token uses, and what a person should know about it."""
    used = keys.get(f"{arch}.expert_used_count")
    most = max(layer.n_experts for layer in layers.values())
    if used is None:
        return 0, [f"{arch}.expert_used_count is missing, so the experts a token uses are not known; give --topk"]
    if not isinstance(used, int) or not 1 <= used <= most:
        raise BadInput(f"{path}: {arch}.expert_used_count is {used}; expected 1 to {most}; the file is damaged")
    said = keys.get(f"{arch}.expert_count")
    if said is not None and {said} != {layer.n_experts for layer in layers.values()}:
        return used, [f"{arch}.expert_count is {said}; the tensors' own expert counts are used"]
    return used, []


def _leading_dense(arch: str, keys: Mapping[str, Value]) -> int:
    first = keys.get(f"{arch}.leading_dense_block_count", 0)
    return first if isinstance(first, int) else 0


def _mtp_notes(arch: str, keys: Mapping[str, Value], layers: Mapping[int, LayerGeometry]) -> list[str]:
    """Layers that only draft tokens ahead: they are in the file, but ordinary decoding does not use them."""
    drafting = keys.get(f"{arch}.nextn_predict_layers", 0)
    blocks = keys.get(f"{arch}.block_count", 0)
    if not isinstance(drafting, int) or not isinstance(blocks, int):
        return []
    last = [number for number in layers if number >= blocks - drafting > 0]
    return [f"layers {ranges(last)} only draft tokens ahead; they are counted here like the others"] if last else []


def _stem(path: Path) -> str:
    named = _SHARD.fullmatch(path.name)
    return named[1] if named else path.stem
