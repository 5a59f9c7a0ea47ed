"""A model from whatever the user names it by."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from flashmoe_sim.geometry.gguf import read_gguf
from flashmoe_sim.geometry.gguf_header import MAGIC
from flashmoe_sim.geometry.manifest import FILE_NAME as MANIFEST
from flashmoe_sim.geometry.manifest import read_manifest
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.geometry.named import (
    NamedModel,
    file_bytes,
    is_name,
    model_names,
    named_model,
    named_models,
    of_size,
    size_hint,
)
from flashmoe_sim.geometry.names import (
    OF_TRACES,
    TO_GIVE,
    Asked,
    asked,
    of_these_sizes,
    plain_quantization,
    says_quantization,
)
from flashmoe_sim.geometry.no_model import NOT_HUGGING_FACE, check_model_file, check_model_folder, place_of
from flashmoe_sim.geometry.pruned import with_experts
from flashmoe_sim.geometry.transformers_config import FILE_NAME as CONFIG
from flashmoe_sim.geometry.transformers_config import read_config
from flashmoe_sim.io.errors import BadInput, Missing, UnknownName, Unusable, shown
from flashmoe_sim.io.files import unreadable
from flashmoe_sim.io.notes import TAKEN, Note
from flashmoe_sim.io.sizes import exact_size, given_size

_SIZE = re.compile(r"\d+(?:\.\d+)?[bt]|latest")  # the tag of a model with its size
SAME_SHOWN, MOST_OFF = 0.03, 0.15  # how far the size that a page shows is from a quantization's
MOST_ALIKE = 3  # known models that are named for one of their sizes


read_online = dict[str, ModelGeometry]()  # by text: what this process has read of repositories


def load_model(spec: str | Path, *, online: bool = False) -> ModelGeometry:
    """The geometry of a sidecar folder, a manifest file, a GGUF file (recognised by content) or a named model.

    A `config.json` of transformers, or a folder with one, gives the model's dimensions.
    The header of a GGUF file is enough: its weights may be cut off.
    The name of a known model always means that model; write `./name` for a folder with the same name. Whatever names
    no file is read as people write models: a repository with or without `:quantization`, a file that is not there,
    `name@103GB`.
    online: if no file and no table knows it, read the header of the repository of Hugging Face that it names, and
        nothing else: config.json, or the beginning of a GGUF file.
    Raises BadInput if it is none of these, or is damaged.
    """
    if isinstance(spec, str) and spec in read_online:
        return read_online[spec]
    try:
        return _known(spec)
    except BadInput as error:
        if not may_be_online(spec):
            raise
        if not online:
            raise type(error)(f"{error}; --online reads its header on Hugging Face") from None
    return look_online(str(spec))[0]


def may_be_online(spec: str | Path) -> bool:
    """Whether a text that nothing here knows may be a repository of Hugging Face."""
    return isinstance(spec, str) and not os.path.lexists(spec) and place_of(spec) is not None


def look_online(spec: str, *, progress: Callable[[int], None] = lambda count_bytes: None) -> tuple[ModelGeometry, int]:
    """The model of a repository of Hugging Face, for every later `load_model` too, and the bytes that were read.

    progress: called with the bytes that came. Raises BadInput and SimError like `online.read_repository`.
    """
    from flashmoe_sim.geometry.online import read_repository

    model, count_bytes = read_repository(spec, progress=progress)
    read_online[spec] = model
    return model, count_bytes


def _known(spec: str | Path) -> ModelGeometry:
    """The geometry of what is here, or in the table."""
    if isinstance(spec, str) and is_name(spec):
        return _named(spec)
    path = Path(spec)
    try:
        if path.is_dir():
            config, manifest = path / CONFIG, path / MANIFEST
            if manifest.exists():
                return read_manifest(path)
            found = read_config(config) if config.is_file() else None
            if found is None:
                check_model_folder(path)
            return found or read_manifest(path)
        if path.is_fifo():
            raise Unusable(f"{path}: is a pipe; give a sidecar folder, its manifest.json or a GGUF file")
        with path.open("rb") as file:
            magic = file.read(len(MAGIC))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return _absent(spec)
    except OSError as error:
        if isinstance(spec, str) and not os.path.lexists(spec) and (known := asked(spec)):
            return _of_asked(spec, known)
        raise unreadable(path, error) from None
    if magic == MAGIC:
        return read_gguf(path, cut=True)
    if (found := read_config(path)) is not None:
        return found
    check_model_file(path)
    return read_manifest(path)


def is_path(text: str) -> bool:
    """Whether a text looks like the path of a file: a folder that exists before a separator, or a known ending."""
    folder, sign, _ = text.replace("\\", "/").rpartition("/")
    if text.startswith(("./", "../", "~", "/", ".\\")) or re.match(r"[A-Za-z]:[/\\]", text):
        return True
    try:
        return text.lower().endswith(".gguf") or bool(OF_TRACES.search(text) or (sign and os.path.isdir(folder)))
    except ValueError:
        return False


def is_model_file(path: str) -> bool:
    """Whether an existing path is a GGUF file, or a `config.json` of transformers or the folder that holds one."""
    return path.endswith((".gguf", CONFIG)) or (
        os.path.isfile(os.path.join(path, CONFIG)) and not os.path.exists(os.path.join(path, MANIFEST))
    )


_BITS_ALONE = re.compile(r"(?!.*mlx)[^/:]*\b[2-8][- ]?bits?\b[^/:]*", re.IGNORECASE)


def quantization_said(spec: str) -> bool:
    """Whether a model's name or file says its quantization or size, so that no other one is meant.

    A `config.json` stands for the model in any quantization: how its own weights are stored is only the first guess.
    Bits alone, as in `qwen3-30b-a3b 4-bit`, say no file: a Mac runs MLX's, other computers a GGUF file.
    """
    if spec in model_names() or _BITS_ALONE.fullmatch(spec):
        return False
    if os.path.lexists(spec) and not is_name(spec):
        return not is_model_file(spec) or spec.endswith(".gguf")
    try:
        found = asked(spec)
    except BadInput:
        return True
    return ":" in spec if found is None else bool(found.quant or found.size_bytes)


def _named(spec: str) -> ModelGeometry:
    """A model by the name that the table has, with a quantization as the table or as people write it."""
    name, colon, quant = spec.lower().partition(":")
    known = model_names().get(name)
    if known and (not colon or quant in named_models()[known].quants):
        return named_model(spec) if known == name else _told(named_model(spec), asked(name))
    try:
        found = asked(spec)
    except BadInput:
        if known and ("@" in quant or quant.endswith(("latest", "cloud")) or not of_size(known, quant.split("-"))):
            raise
        return named_model(spec)
    if found is None or not (found.quant or found.size_bytes):
        same = found is None or (found.model == known and not _SIZE.fullmatch(quant))
        return named_model(spec) if same or found is None else _of_asked(spec, found)
    return _of_asked(spec, found)


def _with_more(spec: str) -> ModelGeometry | None:
    """A `config.json`, or the folder of one, with `:quantization` or `@size` behind it; None for any other text."""
    for sign in "@:":
        path, found, more = spec.rpartition(sign)
        config = Path(path) if path.endswith(CONFIG) else Path(path) / CONFIG
        if found and path and config.is_file():
            if sign == ":":
                return read_config(config, quant=plain_quantization(more))
            return read_config(config, size_bytes=given_size("@", more.strip()))
    return None


def _absent(spec: str | Path) -> ModelGeometry:
    """What a text means that names no file."""
    if isinstance(spec, str) and (with_more := _with_more(spec)):
        return with_more
    if isinstance(spec, str) and (found := asked(spec)):
        return _of_asked(spec, found)
    if isinstance(spec, Path) or spec.endswith(".json"):
        raise Missing(f"{str(spec)!r}: no such file; {TO_GIVE}") from None
    if like := of_these_sizes(spec):
        raise UnknownName(
            f"unknown model {shown(spec, 90)}; {TO_GIVE}; if it is a fine-tune of {' or '.join(like[:MOST_ALIKE])}, "
            "give that name"
        ) from None
    if is_path(spec):
        raise Missing(f"{shown(spec, 90)}: no such file, and no known model is named so; {TO_GIVE}") from None
    if any(sign in spec for sign in "/\\:") or says_quantization(spec):
        raise UnknownName(
            f"{shown(spec, 90)}: no known model is named so: dense, or a mixture of experts that is not known here; "
            f"{TO_GIVE}"
        ) from None
    return named_model(spec)


def _shown_size(spec: str, found: Asked) -> Asked:
    """Without the size that a page shows beside a file, if its quantization has that size, and else as one of its own.

    Raises BadInput if it cannot be the file's.
    """
    plain = replace(found, size_bytes=None, shown=False)
    try:
        usual = file_bytes(_of_asked(spec, plain))
    except BadInput:
        return replace(found, shown=False)
    off = abs((found.size_bytes or 0) / usual - 1)
    if off > MOST_OFF:
        model, given = f"{found.model}:{found.quant}", exact_size(found.size_bytes or 0)
        raise UnknownName(
            f"{shown(spec, 90)}: {model} has {usual / 1e9:.3g} GB, not {given}; give {model}, or {model}@{given} if "
            "that is the size of its file"
        )
    return plain if off < SAME_SHOWN else replace(found, shown=False)


def _of_asked(spec: str, found: Asked) -> ModelGeometry:
    if found.shown:
        return _of_asked(spec, _shown_size(spec, found))
    if found.size_bytes:
        from flashmoe_sim.geometry.recipes import of_size as at_size

        name = f"{_pruned_name(found)}@{exact_size(found.size_bytes)}"
        model = at_size(_entry(found), found.size_bytes, found.quant, name=name)
    elif found.experts:
        from flashmoe_sim.geometry.recipes import geometry_of

        entry = _entry(found)
        quant = found.quant or entry.default
        name = f"{_pruned_name(found)}:{quant}"
        model = geometry_of(entry, quant, found.uploader, name=name, asked=found.repository or spec)
    else:
        plain = f"{found.model}:{found.quant}" if found.quant else found.model
        model = named_model(plain, uploader=found.uploader, asked=found.repository or spec)
    if not (found.quant or found.size_bytes) and spec.lower() not in model_names():
        if (place := place_of(spec)) and place.tag and place.tag != "latest" and "gguf" in place.repository.lower():
            by_size = f"{place.repository}@{size_hint(_entry(found))}"
            raise UnknownName(
                f"{shown(spec, 90)}: {place.tag} is no quantization that is known here; give one, such as "
                f"{place.repository}:{model.quant.upper()}, or the size of its file, {by_size}"
            )
        said = f"{spec.strip()} names no quantization: taken as {model.quant}; give MODEL:QUANT for another"
        model = replace(model, notes=(*model.notes, Note(TAKEN, said)))
    return _told(model, found)


def _entry(found: Asked) -> NamedModel:
    """The dimensions that a text asks for."""
    model = named_models()[found.model]
    return with_experts(model, found.experts) if found.experts else model


def _pruned_name(found: Asked) -> str:
    """The model's name, with the number of its experts if some were removed: `glm-4.5-air-96e`."""
    return f"{found.model}-{found.experts}e" if found.experts else found.model


def _told(model: ModelGeometry, found: Asked | None) -> ModelGeometry:
    """The model with what was taken for what, and the repository that has it."""
    if found is None:
        return model
    notes = (*model.notes, *(Note(TAKEN, one) for one in found.said))
    owner, _, name = found.repository.partition("/")
    there = bool(name) and owner.lower() not in NOT_HUGGING_FACE
    if model.format == "mlx":
        return replace(model, notes=notes, repository=found.repository if there else "")
    served = there and model.format == "gguf" and "gguf" in name.lower()
    served = served and not (found.size_bytes and not found.quant)
    quant = f":{found.quant.upper()}" if found.quant else ""
    return replace(model, notes=notes, repository=f"{found.repository}{quant}" if served else "")
