"""A trace for a model without a recording: the bundled trace of the most similar model, in the model's shape."""

from __future__ import annotations

import math
from functools import lru_cache

from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.geometry.shape import find_shape
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.trace.bundled import BundledTrace, catalog
from flashmoe_sim.trace.load import load_trace
from flashmoe_sim.trace.routing import RoutingTrace
from flashmoe_sim.trace.synth_like import alike
from flashmoe_sim.trace.synth_shape import Shape

TOKENS = 512  # at least; else as many as the source has, whose popularity then changes as fast
# Models with fewer layers are small models, whose tokens return to the same experts more than in large ones. Published
# hit rates of Qwen3.5-35B-A3B and Kimi-K2.5 (data/published), 10 rows, differ by 3 points on average from a trace made
# from gpt-oss-120b, and by 14 points from one made from the small prose-256.
LEAST_LAYERS = 12


def bundled(model: ModelGeometry) -> tuple[Workload, str] | None:
    """The bundled trace of this very model, and a note that says so; None if there is none."""
    own = next((name for name, entry in catalog().items() if entry.model == model.name.partition(":")[0]), None)
    if own is None:
        return None
    note = f"the bundled trace {own} is used; your own work may route differently: `sim trace capture`"
    return prepare(load_trace(own), model), note


def borrow(model: ModelGeometry) -> tuple[Workload, str]:
    """A synthetic trace of the model, and a note on what it was made from.

    Experts are as popular, and recur in the next token as often, as in the bundled trace with the nearest shape.
    """
    source = nearest(model)
    note = (
        f"no trace of {model.name} is at hand: popularity and overlap come from {source}, whose model has the nearest "
        "shape, and the intervals are wider; record one with `sim trace capture`"
    )
    return made_like(source, model), note


def made_like(source: str, model: ModelGeometry) -> Workload:
    """A synthetic trace of the model with the popularity and overlap of a bundled one."""
    shape = find_shape(model)
    assert shape is not None
    return prepare(_alike(source, shape.name, tuple(sorted(shape.n_experts.items())), shape.top_k), model)


@lru_cache(maxsize=8)
def _alike(source: str, name: str, n_experts: tuple[tuple[int, int], ...], top_k: int) -> RoutingTrace:
    trace = load_trace(source)
    made, _ = alike(trace, tokens=max(TOKENS, trace.tokens), shape=Shape(name, dict(n_experts), top_k))
    return made.with_(name=f"like {source}")


def nearest(model: ModelGeometry) -> str:
    """The bundled trace of a large model whose experts and top-k are most like the model's; among equals the longest.

    For a model with few layers, small models count too.
    """
    experts = max(layer.n_experts for layer in model.layers.values())

    def distance(entry: BundledTrace) -> tuple[float, int]:
        share = math.log(entry.experts / entry.top_k) - math.log(experts / max(model.top_k, 1))
        size = math.log(entry.experts / experts)
        return round(abs(share) + abs(size), 6), -entry.tokens

    large = [entry for entry in catalog().values() if entry.layers >= min(LEAST_LAYERS, len(model.layers))]
    return min(large, key=distance).name
