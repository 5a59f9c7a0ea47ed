"""`--moe-predict-top1-prev`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from flashmoe_sim.prefetchers._last_call import LastCall


@dataclass(frozen=True)
class PredictTop1(LastCall):
    """After every step, each layer predicts the first expert of its last call and prefetches it."""

    name: ClassVar[str] = "predict-top1"
    width: ClassVar[int] = 1
