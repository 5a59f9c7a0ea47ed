"""The model of a recorded run: the file that its run.json names, or the manifest with its folder."""

from __future__ import annotations

from pathlib import Path

from flashmoe_sim.geometry.gguf_header import MAGIC
from flashmoe_sim.geometry.manifest import FILE_NAME as MANIFEST
from flashmoe_sim.io import strict_json


def source_of_run(folder: Path) -> Path | None:
    """The GGUF file or sidecar that run.json names, or else the nearest manifest.json; None without either.

    A GGUF file records the weights outside the experts, which a manifest does not.
    """
    try:
        document = strict_json.loads((folder / "run.json").read_bytes())
    except (OSError, ValueError):
        document = None
    named = named_model_file(document.get("model")) if isinstance(document, dict) else None
    return named or manifest_of_run(folder)


def manifest_of_run(folder: Path) -> Path | None:
    """The manifest.json in the folder of a run, or next to that folder."""
    places = (folder / MANIFEST, folder.absolute().parent / MANIFEST)
    return next((place for place in places if place.is_file()), None)


def named_model_file(named: object) -> Path | None:
    """The GGUF file or sidecar that the `model` of a run.json names, if it is still there."""
    if not isinstance(named, dict):
        return None
    paths = (named.get("path"), named.get("sidecar"))  # only the first records the weights outside the experts
    return next((Path(path) for path in paths if isinstance(path, str) and _is_model(path)), None)


def _is_model(path: str) -> bool:
    """Whether it is a GGUF file or a sidecar: nothing else named in a run.json is read, wherever it is.

    Reading a pipe would wait for ever.
    """
    try:
        place = Path(path)
        if place.is_dir() or place.name == MANIFEST:
            return (place.parent if place.name == MANIFEST else place).joinpath(MANIFEST).is_file()
        if not place.is_file():
            return False
        with place.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except (OSError, ValueError):  # the latter for a name with a NUL
        return False
