"""What a predictor is.

A predictor sees routing, never banks: what it predicts is the same for every policy and bank size, and is worked out
once for all of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.parameters import spec_of
from flashmoe_sim.trace.routing import RoutingTrace


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a predictor asked for, in the order in which it did.

    after: i64 [predictions], the routed call right after which it was made, ascending; -1 before the first.
    row: i32 [predictions], the place in `trace.layers` of the layer that is to read ahead.
    offset: i64 [predictions + 1], where the experts of each begin. expert: i16, the most urgent first; may repeat.
    target: i64 [predictions], the routed call that each was made for; None if that is the layer's next one, and a
        later prediction takes the place of an earlier one. A call without tokens is a next one, too.
    """

    after: NDArray[np.int64]
    row: NDArray[np.int32]
    offset: NDArray[np.int64]
    expert: NDArray[np.int16]
    target: NDArray[np.int64] | None = None


@dataclass(frozen=True)
class Prefetcher(ABC):
    """Parameters of a predictor, and what holds for every set of them.

    The first line of a predictor's docstring is its entry in `sim prefetch list`.
    lead: how long before its use an expert is predicted.
    hindsight: whether the prediction is made from what is yet to come.
    """

    name: ClassVar[str]
    contracts: ClassVar[tuple[str, ...]] = ("runtime", "protected", "atomic")
    source: ClassVar[str] = ""
    lead: ClassVar[str] = ""
    hindsight: ClassVar[bool] = False

    @property
    def spec(self) -> str:
        """The name with the parameters that differ from their defaults, as the command line takes it."""
        return spec_of(self)

    @abstractmethod
    def predict(self, trace: RoutingTrace) -> Predictions:
        """Everything that the predictor would have asked for while the trace was recorded."""


OnePredictor = str | Prefetcher | type[Prefetcher]


def rows_of(trace: RoutingTrace) -> NDArray[np.int32]:
    """The place of each call's layer in `trace.layers`, i32 [calls]."""
    return np.searchsorted(trace.layers, trace.layer).astype(np.int32)


def most_experts(trace: RoutingTrace) -> int:
    """Experts of the layer that has most."""
    return max(trace.n_experts[layer] for layer in trace.layers)


def default_width(trace: RoutingTrace) -> int:
    """As many experts as a token uses; where that varies, as the mean call with tokens asks for."""
    return trace.top_k or max(round(trace.refs / max(int(trace.has_refs.sum()), 1)), 1)
