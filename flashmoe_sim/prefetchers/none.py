"""No prefetching."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from flashmoe_sim.prefetchers.base import Predictions, Prefetcher
from flashmoe_sim.trace.routing import RoutingTrace


@dataclass(frozen=True)
class NoPrefetch(Prefetcher):
    """Prefetch nothing."""

    name: ClassVar[str] = "none"
    contracts: ClassVar[tuple[str, ...]] = ("runtime", "protected", "atomic", "sequential")

    def predict(self, trace: RoutingTrace) -> Predictions:
        return Predictions(np.empty(0, np.int64), np.empty(0, np.int32), np.zeros(1, np.int64), np.empty(0, np.int16))
