"""The most frequent experts so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim._jit import allocating
from flashmoe_sim.parameters import INT32, Limits
from flashmoe_sim.prefetchers.base import Memory, PastOnly, Predictions, default_width, most_experts, rows_of
from flashmoe_sim.trace.routing import RoutingTrace


@allocating
def hottest(row: Any, ends: Any, offset: Any, expert: Any, width: int, count: Any, order: Any, rank: Any) -> Any:
    """After every step, for each layer that had a call, its `width` most requested experts so far.

    ends: bool [calls + 1]. count: i64 [layers, experts], requests so far. order: i64 [layers, experts], experts by
    count, largest first; for equal counts the lower number first. rank: i64 [layers, experts], their places in it. All
    updated.
    """
    calls, (layers, experts) = len(row), count.shape
    steps = np.sum(ends)
    after = np.empty((steps * layers, 2), np.int64)
    offsets = np.zeros(steps * layers + 1, np.int64)
    out = np.empty(steps * layers * width, np.int16)
    seen = np.full((layers, experts), -1, np.int64)
    n, at = 0, 0
    for call in range(calls + 1):
        if ends[call]:
            for layer in range(layers):
                if count[layer, order[layer, 0]] == 0:
                    continue
                after[n, 0] = call - 1
                after[n, 1] = layer
                for place in range(width):
                    if count[layer, order[layer, place]] > 0:
                        out[at] = order[layer, place]
                        at += 1
                n += 1
                offsets[n] = at
        if call == calls:
            break
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
    return after[:n], offsets[: n + 1], out[:at]


@dataclass(frozen=True)
class Hot(PastOnly):
    """After every step, each layer prefetches its most requested experts so far.

    width: experts prefetched; 0: as many as a token uses. Equal counts: the lower expert number.
    """

    name: ClassVar[str] = "hot"
    source: ClassVar[str] = "the popularity baseline of cache-aware prefetching, e.g. HOBBIT (arXiv 2411.01433)"
    lead: ClassVar[str] = "unlimited"
    limits: ClassVar[Limits] = {"width": (0, INT32)}

    width: int = 0

    def begin(self, trace: RoutingTrace) -> Memory:
        layers, experts = len(trace.layers), most_experts(trace)
        order = np.tile(np.arange(experts), (layers, 1))
        width = min(self.width or default_width(trace), experts)
        return width, np.zeros((layers, experts), np.int64), order, order.copy()

    def follow(self, chunk: RoutingTrace, ends: NDArray[np.bool_], memory: Memory) -> tuple[Predictions, Memory]:
        after, offset, expert = hottest(rows_of(chunk), ends, chunk.offset, chunk.expert, *memory)
        return Predictions(after[:, 0].copy(), after[:, 1].astype(np.int32), offset, expert), memory
