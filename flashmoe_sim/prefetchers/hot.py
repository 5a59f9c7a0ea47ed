"""The most frequent experts so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from flashmoe_sim._jit import jit
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.prefetchers.base import Predictions, Prefetcher, default_width, most_experts, rows_of
from flashmoe_sim.trace.routing import RoutingTrace


@jit
def hottest(row: Any, step: Any, offset: Any, expert: Any, layers: int, experts: int, width: int) -> Any:
    """After every step, for each layer that had a call, its `width` most requested experts so far."""
    calls = len(row)
    steps = 1 + np.sum(step[1:] != step[:-1])
    after = np.empty((steps * layers, 2), np.int64)
    offsets = np.zeros(steps * layers + 1, np.int64)
    out = np.empty(steps * layers * width, np.int16)
    count = np.zeros((layers, experts), np.int64)
    order = np.empty((layers, experts), np.int64)  # experts by count, the larger first; equal counts: lower number
    rank = np.empty((layers, experts), np.int64)
    for layer in range(layers):
        for e in range(experts):
            order[layer, e] = e
            rank[layer, e] = e
    seen = np.full((layers, experts), -1, np.int64)
    n, at = 0, 0
    for call in range(calls):
        layer = row[call]
        for r in range(offset[call], offset[call + 1]):
            e = expert[r]
            if seen[layer, e] == call:
                continue
            seen[layer, e] = call
            count[layer, e] += 1
            place = rank[layer, e]
            while place > 0:
                other = order[layer, place - 1]
                if count[layer, other] > count[layer, e] or (count[layer, other] == count[layer, e] and other < e):
                    break
                order[layer, place] = other
                rank[layer, other] = place
                place -= 1
            order[layer, place] = e
            rank[layer, e] = place
        if call + 1 < calls and step[call + 1] == step[call]:
            continue
        for layer in range(layers):
            if count[layer, order[layer, 0]] == 0:
                continue
            after[n, 0] = call
            after[n, 1] = layer
            for place in range(width):
                if count[layer, order[layer, place]] > 0:
                    out[at] = order[layer, place]
                    at += 1
            n += 1
            offsets[n] = at
    return after[:n], offsets[: n + 1], out[:at]


@dataclass(frozen=True)
class Hot(Prefetcher):
    """After every step, each layer prefetches the experts that it asked for most often so far.

    width: how many; 0 for as many as a token uses. Equal counts: the lower expert number.
    """

    name: ClassVar[str] = "hot"
    source: ClassVar[str] = "the popularity baseline of cache-aware prefetching, e.g. HOBBIT (arXiv 2411.01433)"
    lead: ClassVar[str] = "unlimited"

    width: int = 0

    def __post_init__(self) -> None:
        if self.width < 0:
            raise BadInput(f"predictor hot: width={self.width} is not 0 or more")

    def predict(self, trace: RoutingTrace) -> Predictions:
        layers, experts = len(trace.layers), most_experts(trace)
        width = min(self.width or default_width(trace), experts)
        after, offset, expert = hottest(rows_of(trace), trace.steps, trace.offset, trace.expert, layers, experts, width)
        return Predictions(after[:, 0].copy(), after[:, 1].astype(np.int32), offset, expert)
