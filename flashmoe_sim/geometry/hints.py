"""Hints from a model on routing that was recorded without its sizes."""

from __future__ import annotations

from typing import Any

from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.trace.requests import Hints


def hints_of(model: ModelGeometry | None, **more: Any) -> Hints:
    """The model's routed layers, experts and top-k as hints; given hints take precedence."""
    if model is None:
        return Hints(**more)
    experts = {number: layer.n_experts for number, layer in model.layers.items()}
    return Hints(**{"model": experts, "top_k": model.top_k or None} | more)
