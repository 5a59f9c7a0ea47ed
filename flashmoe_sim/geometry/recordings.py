"""Models and recordings: the model of a run's folder, a model's sizes as hints, and the shape of a made trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flashmoe_sim.geometry.gguf_header import MAGIC
from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.geometry.manifest import FILE_NAME as MANIFEST
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io import strict_json
from flashmoe_sim.io.errors import Conflict, Incomplete, OutOfRange
from flashmoe_sim.trace.requests import Hints
from flashmoe_sim.trace.synth_shape import Shape, plain_shape


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


def hints_of(model: ModelGeometry | None, **more: Any) -> Hints:
    """The model's routed layers, experts and top-k as hints; given hints take precedence."""
    if model is None:
        return Hints(**more)
    experts = {number: layer.n_experts for number, layer in model.layers.items()}
    return Hints(**{"model": experts, "top_k": model.top_k or None} | more)


def find_shape(
    model: str | Path | ModelGeometry | None = None,
    *,
    layers: int | None = None,
    n_experts: int | None = None,
    top_k: int | None = None,
) -> Shape | None:
    """The layers and experts of a model, or the given ones; None if there are none.

    top_k: by default the model's own; fewer if the engine uses fewer.
    Raises BadInput for both a model and numbers, for incomplete numbers, and for more experts per token than the model
    routes.
    """
    if model is None:
        if layers is n_experts is top_k is None:
            return None
        if layers is None or n_experts is None or top_k is None:
            raise Incomplete("layers, experts and top-k say what is routed only together; give all three, or a model")
        return plain_shape(layers=layers, n_experts=n_experts, top_k=top_k)
    if layers is not None or n_experts is not None:
        raise Conflict("the model gives layers and experts; leave them out, or the model")
    geometry = model if isinstance(model, ModelGeometry) else load_model(model)
    if not geometry.top_k and top_k is None:
        raise Incomplete(f"{geometry.name}: does not say how many experts a token uses; give the top-k")
    if top_k is not None and 0 < geometry.top_k < top_k:
        raise OutOfRange(f"top-k {top_k}: {geometry.name} routes at most {geometry.top_k} experts a token")
    by_layer = {number: layer.n_experts for number, layer in geometry.layers.items()}
    return Shape(geometry.name, by_layer, geometry.top_k if top_k is None else top_k)
