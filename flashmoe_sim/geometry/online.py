"""A model from a repository of Hugging Face that no file here and no table knows: from headers alone, if asked to.

Read are the list of the repository's files and, of one model, `config.json` or the beginning of its GGUF files. Nothing
is kept, and no key is sent.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from flashmoe_sim.geometry.gguf import SHARD, read_gguf
from flashmoe_sim.geometry.gguf_header import HeaderCut, read_header
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.geometry.names import WORD, plain_quantization
from flashmoe_sim.geometry.no_model import Place, check_model_file, place_of
from flashmoe_sim.geometry.quant_words import quantizations_in
from flashmoe_sim.geometry.transformers_config import FILE_NAME as CONFIG
from flashmoe_sim.geometry.transformers_config import INDEX, QUANTIZED, read_config
from flashmoe_sim.io.errors import BadInput, Incomplete, Malformed, TooLarge, UnknownName, Unsupported, shown
from flashmoe_sim.io.fetch import Fetcher
from flashmoe_sim.io.notes import CUT_OFF, code_of, with_code
from flashmoe_sim.io.sizes import given_size
from flashmoe_sim.io.whole import temporary_folder

ENDPOINT = "HF_ENDPOINT"  # the variable with another address of the hub, which its own tools know
HUB = "https://huggingface.co"
MOST_LIST_BYTES, MOST_CONFIG_BYTES = 8 << 20, 4 << 20
PARTS_BYTES = (256 << 10, 1 << 20, 4 << 20, 16 << 20, 16 << 20)  # of a header, one after the other
MOST_NAMED = 12  # files in a message
_NO_MODEL = re.compile(r"mmproj|imatrix|(?:^|/)mtp[-_]", re.IGNORECASE)


def read_repository(
    text: str, *, progress: Callable[[int], None] = lambda count_bytes: None
) -> tuple[ModelGeometry, int]:
    """The model that a repository has, and how many bytes were read for it.

    progress: called with the bytes that came.
    Raises BadInput for a repository of several models in which none is named, without a model, or not public; SimError
    if the network fails.
    """
    place = place_of(text)
    if place is None:
        raise Malformed(
            f"{shown(text, 90)}: names no repository of Hugging Face; expected OWNER/NAME or OWNER/NAME:QUANT"
        )
    fetcher = Fetcher(progress)
    if place.file.endswith(".json"):
        return _of_config(fetcher, place, {place.file: 0}), fetcher.read_bytes
    if place.file.endswith(".gguf"):
        return _of_files(fetcher, place, _shards(place.file)), fetcher.read_bytes
    if place.file and "." in place.file.rpartition("/")[2]:
        raise Unsupported(f"{shown(text, 90)}: is neither a GGUF file nor a {CONFIG}; give the repository alone")
    files = _listed(fetcher, place)
    if models := _models(place, files):
        return _of_files(fetcher, place, _named(text, place, models, files)), fetcher.read_bytes
    if CONFIG not in files:
        raise Unsupported(f"{place.repository}: has neither a GGUF file nor a {CONFIG}; give another repository")
    return _of_config(fetcher, place, files), fetcher.read_bytes


def _hub() -> str:
    return (os.environ.get(ENDPOINT, "").strip() or HUB).rstrip("/")


def _address(place: Place, file: str) -> str:
    """Where the hub has a file."""
    return f"{_hub()}/{place.repository}/resolve/{place.revision}/{quote(file)}"


def _listed(fetcher: Fetcher, place: Place) -> dict[str, int]:
    """The repository's files with their bytes, below the folder that the text names.

    Source: huggingface_hub's `list_repo_tree`.
    """
    folder = f"/{quote(place.file)}" if place.file else ""
    address = f"{_hub()}/api/models/{place.repository}/tree/{place.revision}{folder}?recursive=true"
    try:
        listed = json.loads(fetcher.get(address, most_bytes=MOST_LIST_BYTES))
    except (ValueError, RecursionError):
        listed = None
    if not isinstance(listed, list):
        raise Malformed(f"{address}: is no list of files; give the address of the model's file")
    entries = [one for one in listed if isinstance(one, dict) and one.get("type") == "file"]
    return {
        path: size if type(size := one.get("size")) is int else 0
        for one in entries
        if isinstance(path := one.get("path"), str) and ".." not in path.split("/")
    }


def _models(place: Place, files: Mapping[str, int]) -> dict[str, list[str]]:
    """The GGUF files of each model, by the quantization that their name says, or else by the name."""
    models = dict[str, list[str]]()
    for path in sorted(path for path in files if path.lower().endswith(".gguf") and not _NO_MODEL.search(path)):
        first = _shards(path)[0]
        models.setdefault(first, []).append(path)
    labels = {first: _label(place, first) for first in models}
    twice = {label for label in labels.values() if list(labels.values()).count(label) > 1}
    return {first if labels[first] in twice else labels[first]: paths for first, paths in models.items()}


def _label(place: Place, path: str) -> str:
    """The quantization that a path says, its last part first; else the path."""
    for part in reversed(path.split("/")):
        words = WORD.findall(part.lower().removesuffix(".gguf"))
        if found := quantizations_in(words, uploader=place.repository.partition("/")[0].lower()):
            return found[-1].name
    return path


def _shards(path: str) -> list[str]:
    """All files of the model that a file belongs to."""
    folder, slash, name = path.rpartition("/")
    split = SHARD.fullmatch(name)
    if split is None:
        return [path]
    count = int(split[3])
    return [f"{folder}{slash}{split[1]}-{number:05}-of-{split[3]}.gguf" for number in range(1, count + 1)]


def _named(text: str, place: Place, models: Mapping[str, list[str]], files: Mapping[str, int]) -> list[str]:
    """The files of the model that is named. Raises BadInput, saying which there are, if none is or several are."""
    chosen = dict(models)
    if place.tag:
        asked, tag = plain_quantization(place.tag), re.compile(re.escape(place.tag) + "[.-]", re.IGNORECASE)
        chosen = {label: paths for label, paths in models.items() if label == asked}
        chosen = chosen or {label: paths for label, paths in models.items() if any(map(tag.search, paths))}
    if len(chosen) == 1 and not place.size:
        (paths,) = chosen.values()
        return paths
    has = [
        f"{label if _is_path(label) else label.upper()} ({sum(files[path] for path in paths) / 1e9:.1f} GB)"
        for label, paths in (chosen or models).items()
    ]
    more = f" and {len(has) - MOST_NAMED} more" if len(has) > MOST_NAMED else ""
    first = next(iter(chosen or models))
    give = f"{place.repository}/{first}" if _is_path(first) else f"{place.repository}:{first.upper()}"
    what = f"has {', '.join(has[:MOST_NAMED])}{more}; name one, such as {give}"
    if not chosen:
        raise UnknownName(f"{shown(text, 90)}: no file is named so; {place.repository} {what}")
    raise Incomplete(f"{place.repository}: {what}")


def _is_path(label: str) -> bool:
    return label.lower().endswith(".gguf")


def _of_files(fetcher: Fetcher, place: Place, paths: list[str]) -> ModelGeometry:
    """The model in GGUF files, from their headers."""
    with temporary_folder() as folder, _named_for(place, folder, paths[0].rpartition("/")[0]):
        for path in paths:
            _save_header(fetcher, _address(place, path), folder / path.rpartition("/")[2])
        model = read_gguf(folder / paths[0].rpartition("/")[2], cut=True)
        label = _label(place, paths[0]).upper()
        served = place.revision == "main" and re.search(re.escape(label) + "[.-]", paths[0], re.IGNORECASE)
        return replace(
            _as_from(model, folder, place, paths[0].rpartition("/")[0]),
            gguf="",
            repository=f"{place.repository}:{label}" if served else "",
        )


def _save_header(fetcher: Fetcher, address: str, local: Path) -> None:
    """Write as much of a GGUF file as its header takes."""
    with local.open("wb") as file:
        for most_bytes in PARTS_BYTES:
            part = fetcher.part(address, at=file.tell(), most_bytes=most_bytes)
            file.write(part)
            file.flush()
            try:
                read_header(local)
            except HeaderCut:
                if len(part) < most_bytes:
                    raise
            else:
                return
    raise TooLarge(f"{address}: its header has more than {sum(PARTS_BYTES) >> 20} MiB; give the file itself")


def _of_config(fetcher: Fetcher, place: Place, files: Mapping[str, int]) -> ModelGeometry:
    """The model of a config.json, with the bytes of all its weights as the repository lists them."""
    path = place.file or CONFIG
    with temporary_folder() as above:
        folder = above / f"models--{place.repository.replace('/', '--')}"  # as in the hub's own cache
        folder.mkdir()
        with _named_for(place, folder, ""):
            for name in (path, *({QUANTIZED} & files.keys())):
                content = fetcher.get(_address(place, name), most_bytes=MOST_CONFIG_BYTES)
                (folder / name.rpartition("/")[2]).write_bytes(content)
            if total := sum(size for name, size in files.items() if name.endswith(".safetensors")):
                (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": total}}))
            config = folder / path.rpartition("/")[2]
            quant = plain_quantization(place.tag) if place.tag else ""
            model = read_config(config, quant=quant, size_bytes=given_size("@", place.size) if place.size else 0)
            if model is None:
                check_model_file(config)
                raise Unsupported(f"{config}: is no config.json of transformers; give a GGUF file")
            found = _as_from(model, folder, place, "")
        return replace(found, repository=place.repository) if found.format == "mlx" else found


def _as_from(model: ModelGeometry, folder: Path, place: Place, below: str) -> ModelGeometry:
    """The model with the hub's addresses instead of files that are gone."""
    notes = [_renamed(note, folder, place, below) for note in model.notes if code_of(note) != CUT_OFF]
    return replace(model, source=_renamed(model.source, folder, place, below), notes=tuple(notes))


def _renamed(text: str, folder: Path, place: Place, below: str) -> str:
    """A text, or a note, with the hub's address for the folder."""
    address = _address(place, f"{below}/" if below else "").rstrip("/")
    return with_code(code_of(text), text.replace(str(folder), address))


@contextmanager
def _named_for(place: Place, folder: Path, below: str) -> Iterator[None]:
    """Let errors about files in the folder name the hub's addresses."""
    try:
        yield
    except BadInput as error:
        raise type(error)(_renamed(str(error), folder, place, below)) from None
