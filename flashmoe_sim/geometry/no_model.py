"""What a text names that is no model here: a repository of Hugging Face, or a file or folder, and what to give."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from flashmoe_sim.geometry.names import OF_TRACES
from flashmoe_sim.io.errors import BadInput, Malformed, Unsupported, shown
from flashmoe_sim.io.files import BOM, as_utf8, regular_file_bytes, unreadable

_REPOSITORY = re.compile(
    r"(?:(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/|hf://)?"
    r"(?P<repository>(?P<owner>[A-Za-z0-9][\w-]*)/(?!\.)[\w.-]+)"
    r"(?:/(?:blob|resolve|tree|raw)/(?P<revision>[\w.-]+))?"
    r"(?:/(?P<file>[^?#:@\\]+?))?/?(?:[?#][^:@]*)?"
    r"(?::(?P<tag>[\w.-]+)|@(?P<size>[^/:@]+))?",
    re.ASCII,
)
NOT_HUGGING_FACE = frozenset({"ai", "library"})  # owners of Docker's and Ollama's
_OTHER = frozenset({"models", "datasets", "spaces", "api"})  # folders of the hub, or here
_FILES = re.compile(r"\.(?:gguf|json)$", re.IGNORECASE)


class Place(NamedTuple):
    """What a text names: a repository; a file, a quantization or a size, or none of them."""

    repository: str
    revision: str = "main"
    file: str = ""
    tag: str = ""
    size: str = ""


def place_of(text: str) -> Place | None:
    """The repository that a text names, `owner/name` or its address; None for any other text."""
    found = _REPOSITORY.fullmatch(text.strip())
    if found is None or found["owner"].lower() in NOT_HUGGING_FACE | _OTHER or ".." in (found["file"] or "").split("/"):
        return None
    if _FILES.search(found["repository"]) or OF_TRACES.search(found["repository"]):
        return None
    return Place(**{name: value for name in Place._fields if (value := found[name])})


MOST_BYTES = 32 * 2**20
CONFIG, ADAPTER, PIPELINE = "config.json", "adapter_config.json", "model_index.json"
GIVE = "give the model's config.json as it was published, or a GGUF file"
_BEGINNINGS = (
    (b"version https://git-lfs", "a pointer of Git LFS to a file, not the file", "download it with `git lfs pull`"),
    (b"<!doctype", "a web page", "download the file itself"),
    (b"<html", "a web page", "download the file itself"),
    (b"entry not found", "an answer that there is no such file", "download the file itself"),
    (b"invalid username", "an answer that the file is not public", "download the file itself"),
    (b"pk\x03\x04", "a zip archive or a checkpoint of PyTorch", GIVE),
    (b"\x1f\x8b", "compressed with gzip", "decompress it first"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd", "decompress it first"),
    (b"lmgg", "a GGML file of 2023, from before GGUF", "convert it to GGUF"),
    (b"ggjt", "a GGML file of 2023, from before GGUF", "convert it to GGUF"),
    (b"tjgg", "a GGML file of 2023, from before GGUF", "convert it to GGUF"),
)
_LONGEST = max(len(begin) for begin, *_ in _BEGINNINGS)
# Fields of an object, and what it is.
_OBJECTS = (
    ("weight_map", "the index of a model's weights", "give the config.json beside it"),
    ("added_tokens_decoder", "a tokenizer's configuration", "give the config.json beside it"),
    ("tokenizer_class", "a tokenizer's configuration", "give the config.json beside it"),
    ("image_processor_type", "an image processor's configuration", "give the config.json beside it"),
    ("max_new_tokens", "settings of generation", "give the config.json beside it"),
    ("do_sample", "settings of generation", "give the config.json beside it"),
)


def check_model_file(path: Path) -> None:
    """Raise BadInput for a file that is neither a GGUF file, nor a config.json of a language model, nor a manifest."""
    regular_file_bytes(path, kind="a GGUF file, a config.json or a sidecar's manifest.json")
    try:
        with path.open("rb") as file:
            start = file.read(2 * _LONGEST)
            if begun := next((one for one in _BEGINNINGS if start.lower().lstrip().startswith(one[0])), None):
                raise Malformed(f"{path}: is {begun[1]}", advice=begun[2])
            if start[8:9] == b"{" and int.from_bytes(start[:8], "little") < path.stat().st_size:
                raise Unsupported(f"{path}: is a file of safetensors", advice="give the config.json beside it")
            large = path.stat().st_size > MOST_BYTES
            content = b"" if large else start + file.read()
    except OSError as error:
        raise unreadable(path, error) from None
    if path.suffix.lower() == ".gguf":
        begins = f"begins with {shown(start[:4])}, not with 'GGUF'" if start else "is empty"
        raise Malformed(f"{path}: is no GGUF file: it {begins}", advice="download the file again")
    if large:
        return
    try:
        document = json.loads(as_utf8(content).removeprefix(BOM), parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        if path.name != "manifest.json":
            raise Malformed(f"{path}: is no model: neither GGUF nor JSON", advice=GIVE) from None
        return
    if found := _what(path, document):
        raise found


def check_model_folder(folder: Path) -> None:
    """Raise BadInput for a folder of something that has no config.json of a language model."""
    for name in (CONFIG, ADAPTER, PIPELINE):
        if (folder / name).is_file():
            check_model_file(folder / name)
    if files := sorted(file.name for file in folder.glob("*.gguf")):
        raise Unsupported(
            f"{folder}: is a folder with {files[0]}{' and other GGUF files' if len(files) > 1 else ''}",
            advice=f"give the file, {folder / files[0]}",
        )


def _what(path: Path, document: Any) -> BadInput | None:
    """What a parsed file is; None if it may be a manifest."""
    if not isinstance(document, dict):
        return Malformed(f"{path}: is JSON, but {shown(document)} is no object of a model", advice=GIVE)
    if path.name == "manifest.json" or {"entries", "sidecar_kind"} & set(document):
        return None
    if "peft_type" in document or "base_model_name_or_path" in document:
        base = document.get("base_model_name_or_path")
        of = f", {base[:90]}" if isinstance(base, str) and base else ""
        return Unsupported(f"{path}: is of an adapter (LoRA), not of a model", advice=f"give its base model{of}")
    if "_diffusers_version" in document or "_class_name" in document:
        return Unsupported(f"{path}: is of a diffusers pipeline, not of a language model", advice=GIVE)
    for name, what, advice in _OBJECTS:
        if name in document:
            return Unsupported(f"{path}: is {what}, not a model's config.json", advice=advice)
    if not document:
        return Malformed(f"{path}: is an empty object; expected a model's fields", advice=GIVE)
    return Malformed(f"{path}: names no model_type and no architectures: not a config.json of a model", advice=GIVE)
