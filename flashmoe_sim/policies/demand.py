"""No cache at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.policies.base import Candidates, PinningPolicy


@dataclass(frozen=True)
class Demand(PinningPolicy):
    """Keep nothing: every request is a miss. The null baseline."""

    name: ClassVar[str] = "demand"
    source: ClassVar[str] = "arXiv 2608.07911"
    has_bank: ClassVar[bool] = False
    by_routing: ClassVar[bool] = False
    preloaded: ClassVar[bool] = False
    execution: ClassVar[str] = "page-cache"

    def pinned(self, candidates: Candidates) -> list[NDArray[np.bool_]]:
        return [np.zeros(len(count), np.bool_) for count in candidates.counts]
