"""A bank of whole layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.parameters import Choices
from flashmoe_sim.policies.base import Candidates, PinningPolicy


@dataclass(frozen=True)
class Placed(PinningPolicy):
    """Hold all experts of as many layers as fit, and none of the other layers.

    from_end: where to begin, at the `low` or `high` layers. Layers are taken in order up to the first that does not
        fit. llama.cpp's fit and ik_llama.cpp's --n-cpu-moe leave the low layers on the GPU, llama.cpp's --n-cpu-moe the
        high ones.
    """

    name: ClassVar[str] = "placed"
    source: ClassVar[str] = "llama.cpp 0eca4d490, common/fit.cpp and common/arg.cpp:2464; ik_llama.cpp 8337e4cd3"
    choices: ClassVar[Choices] = {"from_end": ("low", "high")}
    by_routing: ClassVar[bool] = False
    pooled: ClassVar[bool] = True
    by_budget: ClassVar[bool] = True
    execution: ClassVar[str] = "prefill-copy"

    from_end: str = "low"

    def pinned(self, candidates: Candidates) -> list[NDArray[np.bool_]]:
        layers = list(zip(candidates.counts, candidates.expert_bytes, strict=True))
        masks = [np.zeros(len(counts), np.bool_) for counts, _ in layers]
        left = candidates.budget_bytes
        for row in range(len(layers)) if self.from_end == "low" else reversed(range(len(layers))):
            counts, size = layers[row]
            if (left := left - size * len(counts)) < 0:
                break
            masks[row][:] = True
        return masks
