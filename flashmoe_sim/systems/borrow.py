"""A trace for a model that none was recorded of: the bundled one whose model is most alike, in the model's shape."""

from __future__ import annotations

import math

from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.geometry.shape import find_shape
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.trace.bundled import catalog
from flashmoe_sim.trace.load import load_trace
from flashmoe_sim.trace.routing import RoutingTrace
from flashmoe_sim.trace.synth_like import alike

# How far the logarithm of a trace's misses is from that of a trace made in its shape after another model's: standard
# deviation over the pairs of bundled traces, an LRU bank with an eighth, a quarter and half of the experts.
MISSES_SD = 0.6
TOKENS = 512
# Traces of models with fewer layers are of small models, whose tokens return to the same experts more than those of
# large ones. Published hit rates of Qwen3.5-35B-A3B and Kimi-K2.5 (data/published), 10 rows, lie 3 points on average
# from those of a trace made after gpt-oss-120b, and 14 points from those of one made after the small prose-256.
LEAST_LAYERS = 12


def bundled(model: ModelGeometry) -> tuple[Workload, str] | None:
    """The bundled trace of this very model, and the note that says so; None if there is none."""
    own = next((name for name, entry in catalog().items() if entry.model == model.name.partition(":")[0]), None)
    if own is None:
        return None
    note = f"the bundled trace {own} is used; your own work may route differently: `sim trace capture`"
    return prepare(load_trace(own), model), note


def borrow(model: ModelGeometry) -> tuple[Workload, str]:
    """A made trace of the model, and the note that says what it is made from.

    Experts are as popular, and return in the next token as often, as in the bundled trace of the nearest shape.
    """
    source = nearest(model)
    shape = find_shape(model)
    assert shape is not None
    made, _ = alike(source, tokens=TOKENS, shape=shape)
    note = (
        f"no trace of {model.name} is at hand: popularity and overlap come from {source.name}, whose model has the "
        "nearest shape, and the intervals are wider; record one with `sim trace capture`"
    )
    return prepare(made.with_(name=f"like {source.name}"), model), note


def nearest(model: ModelGeometry) -> RoutingTrace:
    """The bundled trace of a large model whose experts and top-k are most alike the model's; of equal ones the longer.

    Of a model of few layers, the small ones are alike, too.
    """
    experts = max(layer.n_experts for layer in model.layers.values())

    def distance(trace: RoutingTrace) -> tuple[float, int]:
        share = math.log(max(trace.n_experts.values()) / trace.top_k) - math.log(experts / max(model.top_k, 1))
        size = math.log(max(trace.n_experts.values()) / experts)
        return round(abs(share) + abs(size), 6), -trace.tokens

    traces = [load_trace(name) for name in catalog()]
    large = [trace for trace in traces if len(trace.layers) >= min(LEAST_LAYERS, len(model.layers))]
    return min(large, key=distance)
