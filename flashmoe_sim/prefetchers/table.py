"""Every predictor there is: one line each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flashmoe_sim.prefetchers.base import Prefetcher

CLASSES = {
    "none": "none:NoPrefetch",
    "temporal": "last_call:Temporal",
    "predict-prev": "last_call:PredictPrev",
    "predict-top1": "last_call:PredictTop1",
    "hot": "hot:Hot",
    "markov": "markov:Markov",
    "next-layer": "next_layer:NextLayer",
    "eam": "eam:Eam",
    "synthetic": "synthetic:Synthetic",
    "oracle-1": "oracle:Oracle1",
    "oracle-w": "oracle:OracleW",
}


class _Prefetchers(Mapping[str, "type[Prefetcher]"]):
    """The classes by name; a file is imported when its class is asked for, so that `--help` has the names at once."""

    def __getitem__(self, name: str) -> type[Prefetcher]:
        module, _, kind = CLASSES[name].partition(":")
        found: type[Prefetcher] = getattr(import_module(f"flashmoe_sim.prefetchers.{module}"), kind)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(CLASSES)

    def __len__(self) -> int:
        return len(CLASSES)


PREFETCHERS = _Prefetchers()


def parse_prefetcher(text: str) -> Prefetcher:
    """A predictor from `temporal`, `hot:width=4` or `my_module:MyPredictor`."""
    from flashmoe_sim.parameters import parse
    from flashmoe_sim.prefetchers.base import Prefetcher

    return parse("predictor", text, PREFETCHERS, Prefetcher)
