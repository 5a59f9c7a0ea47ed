"""The shape of a synthetic trace, from a model or from plain numbers."""

from __future__ import annotations

from pathlib import Path

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.errors import Conflict, Incomplete, OutOfRange
from flashmoe_sim.trace.synth_shape import Shape, plain_shape


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
