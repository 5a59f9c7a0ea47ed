"""A predictor of chosen quality."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim._jit import allocating
from flashmoe_sim.parameters import INT32, MOST, Limits
from flashmoe_sim.prefetchers.base import Predictions, Prefetcher, most_experts, rows_of
from flashmoe_sim.prefetchers.oracle import steps_ahead
from flashmoe_sim.trace.calls import ranges
from flashmoe_sim.trace.join import drafted_of, phases_of
from flashmoe_sim.trace.routing import RoutingTrace, offsets


@allocating
def mix(row: Any, offset: Any, expert: Any, n_experts: Any, drawn: Any, wrong: Any, recall: float, most: int) -> Any:
    """For every call, the distinct experts whose draw is below `recall`, then as many wrong ones as there is room for.

    n_experts: i64 [layers]. drawn: f64 [references]; wrong: f64 [calls, extra], relative places among the experts not
    requested and not yet chosen, in ascending order.
    """
    offsets = np.zeros(len(row) + 1, np.int64)
    out = np.empty(len(expert) + wrong.size, np.int16)
    taken = np.full(most, -1, np.int64)
    at = 0
    for call in range(len(row)):
        distinct = 0
        for r in range(offset[call], offset[call + 1]):
            if taken[expert[r]] == call:
                continue
            taken[expert[r]] = call
            distinct += 1
            if drawn[r] < recall:
                out[at] = expert[r]
                at += 1
        others = n_experts[row[call]] - distinct
        for i in range(wrong.shape[1]):
            if others == 0:
                break
            left = int(wrong[call, i] * others)
            e = 0
            while taken[e] == call or left > 0:
                left -= taken[e] != call
                e += 1
            taken[e] = call
            others -= 1
            out[at] = e
            at += 1
        offsets[call + 1] = at
    return offsets, out[:at]


@dataclass(frozen=True)
class Synthetic(Prefetcher):
    """After every step, prefetch a share of the next step's experts, and some wrong ones.

    recall: the probability that an expert of the step is predicted, drawn for each expert.
    extra: wrong experts predicted per call, at random, after the right ones.
    steps: how many steps ahead. seed: seed of the draws.
    layers: only so many layers are predicted, the first ones: beyond, a read comes too late. 0 for all.
    drafted: only passes that verify drafted tokens are predicted, as a drafter's tokens foretell them.
    """

    name: ClassVar[str] = "synthetic"
    source: ClassVar[str] = "no system: a predictor whose quality is chosen, to find the quality that pays"
    lead: ClassVar[str] = "`steps` steps"
    limits: ClassVar[Limits] = {
        "recall": (0, 1),
        "extra": (0, INT32),
        "steps": (1, INT32),
        "seed": (0, MOST),
        "layers": (0, INT32),
    }
    hindsight: ClassVar[bool] = True

    recall: float = 0.5
    extra: int = 0
    steps: int = 1
    seed: int = 1
    layers: int = 0
    drafted: bool = False

    def predict(self, trace: RoutingTrace) -> Predictions:
        generator = np.random.default_rng(self.seed)
        row, counts = rows_of(trace), np.array([trace.n_experts[layer] for layer in trace.layers], np.int64)
        most = most_experts(trace)
        drawn, wrong = generator.random(trace.refs), generator.random((trace.calls, min(self.extra, most)))
        offset, expert = mix(row, trace.offset, trace.expert, counts, drawn, wrong, self.recall, most)
        call = np.flatnonzero(self._predicted(trace, row))
        length = np.diff(offset)[call]
        expert = expert[ranges(offset[call], length)]
        return Predictions(steps_ahead(trace, self.steps)[call], row[call], offsets(length), expert, call)

    def _predicted(self, trace: RoutingTrace, row: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Which calls are predicted, bool [calls]."""
        chosen = row < (self.layers or len(trace.layers))
        return chosen & (drafted_of(trace, phases_of(trace)) > 0) if self.drafted else chosen
