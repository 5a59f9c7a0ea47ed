"""`--moe-predict-prev-token`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from flashmoe_sim.prefetchers._last_call import LastCall


@dataclass(frozen=True)
class PredictPrev(LastCall):
    """After every step, each layer predicts the union of its last call and prefetches it."""

    name: ClassVar[str] = "predict-prev"
