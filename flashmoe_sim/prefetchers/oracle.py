"""The truth, ahead of time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.parameters import INT32, Limits
from flashmoe_sim.prefetchers.base import Predictions, Prefetcher, rows_of
from flashmoe_sim.trace.routing import RoutingTrace


def steps_ahead(trace: RoutingTrace, steps: int) -> NDArray[np.int64]:
    """For every call, the last call of the step that is `steps` earlier, or -1; i64 [calls].

    Steps are counted in order, whatever their recorded numbers.
    """
    step = np.cumsum(np.diff(trace.steps, prepend=trace.steps[:1]) != 0)
    return np.searchsorted(step, step - steps, side="right") - 1


@dataclass(frozen=True)
class Oracle1(Prefetcher):
    """After every call, prefetch what the next call requests.

    The first call is prefetched before the run. Under the contract `runtime` this is the runtime's `oracle-prefetch`.
    """

    name: ClassVar[str] = "oracle-1"
    source: ClassVar[str] = "the patched llama.cpp runtime, --moe-mode oracle-prefetch"
    lead: ClassVar[str] = "one call"
    hindsight: ClassVar[bool] = True

    def predict(self, trace: RoutingTrace) -> Predictions:
        call = np.arange(trace.calls)
        return Predictions(call - 1, rows_of(trace), trace.offset, trace.expert, call)


@dataclass(frozen=True)
class OracleW(Prefetcher):
    """After every step, prefetch what the step `steps` ahead requests.

    steps: how many steps ahead. The first `steps` steps are prefetched before the run.
    """

    name: ClassVar[str] = "oracle-w"
    source: ClassVar[str] = "the bound on any predictor that works whole steps ahead"
    lead: ClassVar[str] = "`steps` steps"
    limits: ClassVar[Limits] = {"steps": (1, INT32)}
    hindsight: ClassVar[bool] = True

    steps: int = 1

    def predict(self, trace: RoutingTrace) -> Predictions:
        after, call = steps_ahead(trace, self.steps), np.arange(trace.calls)
        return Predictions(after, rows_of(trace), trace.offset, trace.expert, call)
