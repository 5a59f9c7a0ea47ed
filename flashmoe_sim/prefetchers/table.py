"""Every predictor there is: one line each."""

from __future__ import annotations

from flashmoe_sim.errors import unknown_name
from flashmoe_sim.prefetchers.base import Prefetcher
from flashmoe_sim.prefetchers.none import NoPrefetch
from flashmoe_sim.prefetchers.predict_prev import PredictPrev
from flashmoe_sim.prefetchers.predict_top1 import PredictTop1
from flashmoe_sim.prefetchers.temporal import Temporal

PREFETCHERS: dict[str, type[Prefetcher]] = {
    "none": NoPrefetch,
    "temporal": Temporal,
    "predict-prev": PredictPrev,
    "predict-top1": PredictTop1,
}


def parse_prefetcher(text: str) -> Prefetcher:
    """A predictor from its name."""
    if text not in PREFETCHERS:
        raise unknown_name("predictor", text, PREFETCHERS)
    return PREFETCHERS[text]()
