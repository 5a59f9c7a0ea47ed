"""A model from whatever the user names it by."""

from __future__ import annotations

from pathlib import Path

from flashmoe_sim.geometry.gguf import read_gguf
from flashmoe_sim.geometry.gguf_header import MAGIC
from flashmoe_sim.geometry.manifest import FILE_NAME as MANIFEST
from flashmoe_sim.geometry.manifest import read_manifest
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.geometry.named import is_name, meant, named_model
from flashmoe_sim.geometry.transformers_config import FILE_NAME as CONFIG
from flashmoe_sim.geometry.transformers_config import read_config
from flashmoe_sim.io.errors import Missing, Unusable
from flashmoe_sim.io.files import unreadable


def load_model(spec: str | Path) -> ModelGeometry:
    """The geometry of a sidecar folder, a manifest file, a GGUF file (recognised by content) or a named model.

    A `config.json` of transformers, or a folder with one, stands for the known model with its dimensions.
    The header of a GGUF file is enough: its weights may be cut off.
    The name of a known model always means that model; write `./name` for a folder with the same name.
    Raises BadInput if it is none of these, or is damaged.
    """
    if isinstance(spec, str) and is_name(spec):
        return named_model(spec)
    path = Path(spec)
    try:
        if path.is_dir():
            config, manifest = path / CONFIG, path / MANIFEST
            found = read_config(config) if config.is_file() and not manifest.exists() else None
            return found or read_manifest(path)
        if path.is_fifo():
            raise Unusable(f"{path}: is a pipe; give a sidecar folder, its manifest.json or a GGUF file")
        with path.open("rb") as file:
            magic = file.read(len(MAGIC))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        if isinstance(spec, Path) or any(sign in spec for sign in "/\\") or spec.endswith((".json", ".gguf")):
            name = meant(str(spec))
            hint = f"; the model is called {name}" if name else ""
            raise Missing(
                f"{str(spec)!r}: no such file; give a sidecar folder, its manifest.json, a GGUF file or a model's "
                f"name{hint}"
            ) from None
        return named_model(str(spec))
    except OSError as error:
        raise unreadable(path, error) from None
    return read_gguf(path, cut=True) if magic == MAGIC else read_config(path) or read_manifest(path)
