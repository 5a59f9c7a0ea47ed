"""The table of predictors: one line each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashmoe_sim.io.lazy import LazyTable

if TYPE_CHECKING:
    from flashmoe_sim.prefetchers.base import Prefetcher

PREFETCHERS: LazyTable[type[Prefetcher]] = LazyTable(
    __package__,
    {
        "none": "none:NoPrefetch",
        "temporal": "last_call:Temporal",
        "predict-prev": "last_call:PredictPrev",
        "predict-top1": "last_call:PredictTop1",
        "hot": "hot:Hot",
        "markov": "markov:Markov",
        "next-layer": "next_layer:NextLayer",
        "eam": "eam:Eam",
        "recorded": "recorded:Recorded",
        "synthetic": "synthetic:Synthetic",
        "oracle-1": "oracle:Oracle1",
        "oracle-w": "oracle:OracleW",
    },
)
FROM_FILE = ("recorded",)  # which need a file, so `all` is the others
WITHOUT_FILE = tuple(name for name in PREFETCHERS if name not in FROM_FILE)


def parse_prefetcher(text: str) -> Prefetcher:
    """A predictor from `temporal`, `hot:width=4` or `my_module:MyPredictor`."""
    from flashmoe_sim.parameters import parse
    from flashmoe_sim.prefetchers.base import Prefetcher

    return parse("predictor", text, PREFETCHERS, Prefetcher)
