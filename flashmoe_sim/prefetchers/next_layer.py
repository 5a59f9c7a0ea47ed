"""The experts of the next layer that go with those of this one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from flashmoe_sim.prefetchers.base import Predictions, rows_of
from flashmoe_sim.prefetchers.markov import Markov
from flashmoe_sim.trace.routing import RoutingTrace


@dataclass(frozen=True)
class NextLayer(Markov):
    """After every call, the next layer prefetches its experts that most often went with these in one step.

    A stand-in for speculating with the next layer's gate, for which a trace would have to hold hidden states. Learnt
    while the trace runs, from its past only, as `markov` is, but between neighbouring layers of the same step.
    width: how many; 0 for as many as a token uses. Equal scores: the lower expert number.
    """

    name: ClassVar[str] = "next-layer"
    source: ClassVar[str] = "gate speculation of Eliseev & Mazur 2023 (arXiv 2312.17238), from co-activation"
    lead: ClassVar[str] = "one layer"

    def predict(self, trace: RoutingTrace) -> Predictions:
        row, step = rows_of(trace), trace.steps
        follows = np.zeros(trace.calls, np.bool_)
        follows[1:] = (step[1:] == step[:-1]) & (row[1:] == row[:-1] + 1)
        source = np.where(follows, np.arange(trace.calls) - 1, -1)
        target = np.where(row + 1 < len(trace.layers), row + 1, -1).astype(np.int32)
        return self._follow(trace, source, target)
