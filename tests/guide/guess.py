"""A predictor of your own: what a layer's last two calls both used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from flashmoe_sim.prefetchers.base import Predictions, Prefetcher
from flashmoe_sim.trace.routing import RoutingTrace


@dataclass(frozen=True)
class Twice(Prefetcher):
    """The experts that a layer's last two calls both used, for its next call."""

    name: ClassVar[str] = "twice"
    lead: ClassVar[str] = "a token"

    def predict(self, trace: RoutingTrace) -> Predictions:
        row_of = {layer: row for row, layer in enumerate(trace.layers)}
        last: dict[int, set[int]] = {}
        after, row, offset, expert = list[int](), list[int](), [0], list[int]()
        for call, layer in enumerate(trace.layer.tolist()):
            used = set(trace.expert[trace.offset[call] : trace.offset[call + 1]].tolist())
            if both := used & last.get(layer, set()):
                after.append(call)
                row.append(row_of[layer])
                expert += sorted(both)
                offset.append(len(expert))
            last[layer] = used
        return Predictions(
            np.array(after, np.int64), np.array(row, np.int32), np.array(offset, np.int64), np.array(expert, np.int16)
        )
