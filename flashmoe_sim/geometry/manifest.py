"""The manifest of a sidecar: the routed experts extracted from a model, tensor by tensor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, TypeGuard

from flashmoe_sim.geometry.families import GATE_UP, MAX_EXPERTS, MAX_LAYER, ROUTED_FAMILIES, missing_notes, ordered
from flashmoe_sim.geometry.graph import Graph, graph_of
from flashmoe_sim.geometry.model import LayerGeometry, ModelGeometry
from flashmoe_sim.io import strict_json
from flashmoe_sim.io.errors import BadInput, Malformed, Missing, TooLarge, Unsupported, shown
from flashmoe_sim.io.files import BOM, as_utf8, regular_file_bytes, unreadable

FILE_NAME = "manifest.json"
KIND = "flashmoe_gguf"
MAX_MANIFEST_BYTES = 256 * 2**20
MAX_TENSOR_BYTES = 2**50
_AGAIN = "extract the sidecar again"


@dataclass
class _Layer:
    """A layer while its entries are being read."""

    n_experts: int
    family_bytes: dict[str, int] = field(default_factory=dict)


def read_manifest(path: str | Path) -> ModelGeometry:
    """Read a sidecar's `manifest.json`, given the file or its folder.

    A partial sidecar is read as it is; `notes` say what it lacks. Shared experts, which every token uses, need no slot
    and are left out. The files named in the manifest are not opened; a name that leads out of the folder is refused.
    Raises BadInput, naming the entry, for anything that the patched runtime would not write.
    """
    path, document = manifest_document(path)
    if (kind := document.get("sidecar_kind") or KIND) != KIND:
        raise Unsupported(
            f"{path}: sidecar_kind is {str(kind)[:60]!r}: experts are converted while they are read, so that a "
            f"read has other bytes than a slot; expected {KIND}",
            advice="give the model as GGUF, or a sidecar of that kind",
        )
    model = document.get("model", {})
    if not isinstance(model, dict):
        raise _wrong(path, "model", model, "an object")
    expert_count = _optional_count(path, model, "expert_count", MAX_EXPERTS)
    layers: dict[int, _Layer] = {}
    quants: Counter[str] = Counter()
    ignored: set[str] = set()
    for index, entry in _entries(path, document):
        _check_repacked_file(path, index, entry)
        family = entry.get("tensor_family")
        if not isinstance(family, str):
            raise _wrong(path, f"entry {index}: tensor_family", family, f"one of {', '.join(ROUTED_FAMILIES)}")
        if family not in ROUTED_FAMILIES:
            ignored.add(family)
            continue
        number = _integer(path, index, entry, "layer", least=0, most=MAX_LAYER)
        n_experts = _experts(path, index, entry, expert_count)
        layer = layers.setdefault(number, _Layer(n_experts))
        if family in layer.family_bytes:
            raise Malformed(f"{path}: entry {index}: a second {family} of layer {number}; expected one", advice=_AGAIN)
        if layer.n_experts != n_experts:
            raise Malformed(
                f"{path}: entry {index}: {n_experts} experts in layer {number}, but an earlier entry has "
                f"{layer.n_experts}; expected one number for the layer",
                advice=_AGAIN,
            )
        layer.family_bytes[family] = _expert_bytes(path, index, entry, n_experts)
        quants[str(entry.get("quant_type", "?"))] += layer.family_bytes[family] * n_experts
    if not layers:
        raise Malformed(f"{path}: no routed expert tensor among its entries; expected {', '.join(ROUTED_FAMILIES)}")
    return _geometry(path, document, model, layers, quants, ignored)


def manifest_document(path: str | Path) -> tuple[Path, dict[str, Any]]:
    """A parsed manifest, given the file or its folder, and the path of the file.

    Raises BadInput for anything but a JSON object.
    """
    path = Path(path)
    if path.is_dir():
        path = path / FILE_NAME
        if not path.exists():
            raise Missing(
                f"{path.parent}: no {FILE_NAME} in this folder", advice="give a sidecar's folder, or a GGUF file"
            )
    size = regular_file_bytes(path, kind="a sidecar's manifest.json, or of the folder that holds it")
    if size > MAX_MANIFEST_BYTES:
        raise TooLarge(
            f"{path}: {size / 2**20:,.0f} MiB; a manifest has at most {MAX_MANIFEST_BYTES // 2**20} MiB",
            advice="is this another file?",
        )
    try:
        document = strict_json.loads(as_utf8(path.read_bytes()).removeprefix(BOM))
    except OSError as error:
        raise unreadable(path, error) from None
    except ValueError as error:
        raise Malformed(f"{path}: not JSON ({error}); expected a sidecar's manifest", advice=_AGAIN) from None
    if not isinstance(document, dict):
        raise _wrong(path, "the document", document, "an object with `model` and `entries`")
    return path, document


def repacked_files(path: str | Path) -> list[Path]:
    """The files that a sidecar's manifest names, sorted by name.

    Raises BadInput for anything but a manifest, and for a name that leads out of its folder.
    """
    path, document = manifest_document(path)
    names = set()
    for index, entry in _entries(path, document):
        _check_repacked_file(path, index, entry)
        if (name := entry.get("repacked_file")) is None:
            raise _wrong(path, f"entry {index}: repacked_file", name, "the file that holds it")
        names.add(name)
    return sorted(path.parent / name for name in names)


def _entries(path: Path, document: Mapping[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    entries = document.get("entries")
    if not isinstance(entries, list):
        raise _wrong(path, "entries", entries, "a list of tensors")
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise _wrong(path, f"entry {index}", entry, "an object")
        yield index, entry


def _check_repacked_file(path: Path, index: int, entry: Mapping[str, Any]) -> None:
    """Refuse a file name that is not plainly inside the manifest's folder, on any operating system."""
    name = entry.get("repacked_file")
    if name is None:
        return
    plain = (
        isinstance(name, str)
        and name != ""
        and "\0" not in name
        and not PurePosixPath(name).is_absolute()
        and not PureWindowsPath(name).anchor
        and ".." not in PureWindowsPath(name).parts
    )
    if not plain:
        raise _wrong(path, f"entry {index}: repacked_file", name, "a relative path inside the sidecar's folder")


def _experts(path: Path, index: int, entry: Mapping[str, Any], expert_count: int | None) -> int:
    shape = entry.get("shape")
    if shape is None and expert_count is not None:
        return expert_count
    wanted = "a list of three numbers, the last being the experts"
    if not isinstance(shape, list) or len(shape) != 3:
        raise _wrong(path, f"entry {index}: shape", shape, wanted)
    if not all(_is_integer(size) and size > 0 for size in shape) or shape[-1] > MAX_EXPERTS:
        raise _wrong(path, f"entry {index}: shape", shape, f"{wanted} (at most {MAX_EXPERTS})")
    return int(shape[-1])


def _expert_bytes(path: Path, index: int, entry: Mapping[str, Any], n_experts: int) -> int:
    per_expert = _integer(path, index, entry, "bytes_per_expert", least=1, most=MAX_TENSOR_BYTES)
    whole = _integer(path, index, entry, "exact_byte_length", least=1, most=MAX_TENSOR_BYTES)
    if per_expert * n_experts != whole:
        raise Malformed(
            f"{path}: entry {index}: bytes_per_expert {per_expert} x {n_experts} experts = {per_expert * n_experts}, "
            f"but exact_byte_length is {whole}; expected the two to agree",
            advice=_AGAIN,
        )
    return per_expert


def _integer(path: Path, index: int, entry: Mapping[str, Any], key: str, *, least: int, most: int) -> int:
    value = entry.get(key)
    if not _is_integer(value) or not least <= value <= most:
        raise _wrong(path, f"entry {index}: {key}", value, f"an integer from {least} to {most}")
    return value


def _optional_count(path: Path, model: Mapping[str, Any], key: str, most: int) -> int | None:
    value = model.get(key)
    if value is None:
        return None
    if not _is_integer(value) or not 1 <= value <= most:
        raise _wrong(path, f"model.{key}", value, f"an integer from 1 to {most}")
    return value


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _wrong(path: Path, where: str, found: object, expected: str) -> BadInput:
    return Malformed(f"{path}: {where} is {shown(found)}; expected {expected}", advice=_AGAIN)


def _geometry(
    path: Path,
    document: Mapping[str, Any],
    model: Mapping[str, Any],
    read: Mapping[int, _Layer],
    quants: Counter[str],
    ignored: set[str],
) -> ModelGeometry:
    layers = {
        number: LayerGeometry(read[number].n_experts, ordered(read[number].family_bytes)) for number in sorted(read)
    }
    top_k = _optional_count(path, model, "expert_used_count", max(layer.n_experts for layer in layers.values()))
    dense_layers = model.get("leading_dense_block_count")
    notes = list(missing_notes(layers, first_layer=dense_layers if _is_integer(dense_layers) else None))
    if top_k is None:
        notes.append("the manifest does not say how many experts a token uses; give --topk")
    if ignored:
        notes.append(f"not routed, so not counted: {', '.join(sorted(ignored))}")
    arch = str(model.get("arch") or "")
    return ModelGeometry(
        name=_name(path, document),
        layers=layers,
        top_k=top_k or 0,
        source=f"sidecar manifest {path}",
        arch=arch,
        quant="+".join(name for name, _ in quants.most_common()),
        notes=tuple(notes),
        graph=graph_of(arch, Graph(fused=any(GATE_UP in layer.family_bytes for layer in layers.values()))),
        format="gguf",
    )


def _name(path: Path, document: Mapping[str, Any]) -> str:
    """The model file from which the sidecar was extracted, else the folder."""
    match document.get("source"):
        case {"model_files": [str(first), *_]} if first:
            return PureWindowsPath(first).stem
    return path.absolute().parent.name
