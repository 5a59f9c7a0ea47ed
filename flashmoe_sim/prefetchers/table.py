"""Every predictor there is: one line each."""

from __future__ import annotations

from flashmoe_sim.parameters import parse
from flashmoe_sim.prefetchers.base import Prefetcher
from flashmoe_sim.prefetchers.eam import Eam
from flashmoe_sim.prefetchers.hot import Hot
from flashmoe_sim.prefetchers.markov import Markov
from flashmoe_sim.prefetchers.next_layer import NextLayer
from flashmoe_sim.prefetchers.none import NoPrefetch
from flashmoe_sim.prefetchers.oracle import Oracle1, OracleW
from flashmoe_sim.prefetchers.predict_prev import PredictPrev
from flashmoe_sim.prefetchers.predict_top1 import PredictTop1
from flashmoe_sim.prefetchers.synthetic import Synthetic
from flashmoe_sim.prefetchers.temporal import Temporal

PREFETCHERS: dict[str, type[Prefetcher]] = {
    "none": NoPrefetch,
    "temporal": Temporal,
    "predict-prev": PredictPrev,
    "predict-top1": PredictTop1,
    "hot": Hot,
    "markov": Markov,
    "next-layer": NextLayer,
    "eam": Eam,
    "synthetic": Synthetic,
    "oracle-1": Oracle1,
    "oracle-w": OracleW,
}


def parse_prefetcher(text: str) -> Prefetcher:
    """A predictor from `temporal`, `hot:width=4` or `my_module:MyPredictor`."""
    return parse("predictor", text, PREFETCHERS, Prefetcher)
