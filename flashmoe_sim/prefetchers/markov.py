"""The experts that most often follow the current ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim._jit import allocating, jit
from flashmoe_sim.parameters import INT32, Limits
from flashmoe_sim.prefetchers.base import (
    NO_CALLS,
    LastCalls,
    Memory,
    PastOnly,
    Predictions,
    default_width,
    most_experts,
)
from flashmoe_sim.trace.routing import RoutingTrace


@allocating
def followers(earlier: int, source: Any, target: Any, offset: Any, expert: Any, width: int, followed: Any) -> Any:
    """After every call, predict for a later one from how often experts of such calls followed each other before.

    earlier: how many of the calls come from before and are only learnt from. followed: i32 [layers, experts, experts],
    by target layer, how often the last expert occurred there with the one before it in the source; updated.
    source: i64 [calls], the call that each call follows in the learnt pairs, or -1. target: i32 [calls], the layer for
    which a prediction is made after each call, or -1. For each target layer it learns pairs of an expert of the source
    and one of the call, once per pair of calls. It predicts the experts with the `width` largest sums over the source's
    experts.
    """
    calls, experts = len(target), followed.shape[1]
    after = np.empty((calls, 2), np.int64)
    offsets = np.zeros(calls + 1, np.int64)
    out = np.empty(calls * width, np.int16)
    score = np.zeros(experts, np.int64)
    now = np.zeros(experts, np.int64)
    before = np.zeros(experts, np.int64)
    seen = np.full((2, experts), -1, np.int64)
    n, at = 0, 0
    for call in range(earlier, calls):
        n_now = 0
        for r in range(offset[call], offset[call + 1]):
            if seen[0, expert[r]] != call:
                seen[0, expert[r]] = call
                now[n_now] = expert[r]
                n_now += 1
        origin = source[call]
        if origin >= 0:
            n_before = 0
            for r in range(offset[origin], offset[origin + 1]):
                if seen[1, expert[r]] != call:
                    seen[1, expert[r]] = call
                    before[n_before] = expert[r]
                    n_before += 1
            for i in range(n_before):
                learnt = followed[target[origin], before[i]]
                for j in range(n_now):
                    learnt[now[j]] += 1
        if target[call] < 0:
            continue
        score[:] = 0
        for i in range(n_now):
            learnt = followed[target[call], now[i]]
            for e in range(experts):
                score[e] += learnt[e]
        after[n, 0] = call - earlier
        after[n, 1] = target[call]
        at = take_best(score, width, out, at)
        n += 1
        offsets[n] = at
    return after[:n], offsets[: n + 1], out[:at]


@jit
def take_best(score: Any, width: int, out: Any, at: int) -> int:
    """Write the experts with the `width` largest scores above 0 to `out` from `at` on, the best first; return the end.

    score: i64 [experts], set to 0 for those taken. For equal scores, the lower expert number is first.
    """
    for _ in range(width):
        best = 0
        for expert in range(len(score)):
            best = max(best, score[expert])
        if best == 0:
            break
        expert = 0
        while score[expert] != best:
            expert += 1
        score[expert] = 0
        out[at] = expert
        at += 1
    return at


@dataclass(frozen=True)
class Markov(PastOnly):
    """After every call, prefetch the experts of its layer that most often followed those of the call.

    It learns while the trace runs, only from its past: a first-order table of expert pairs for each layer, counted once
    per pair of calls. An expert's score is the sum over the experts of the current call.
    width: experts prefetched; 0: as many as a token uses. Equal scores: the lower expert number.
    """

    name: ClassVar[str] = "markov"
    source: ClassVar[str] = "first-order transition tables, as in Pre-gated and CECAR's `markov`"
    lead: ClassVar[str] = "one step"
    limits: ClassVar[Limits] = {"width": (0, INT32)}

    width: int = 0

    def begin(self, trace: RoutingTrace) -> Memory:
        experts = most_experts(trace)
        width = min(self.width or default_width(trace), experts)
        return width, np.zeros((len(trace.layers), experts, experts), np.int32), NO_CALLS

    def follow(self, chunk: RoutingTrace, ends: NDArray[np.bool_], memory: Memory) -> tuple[Predictions, Memory]:
        width, followed, before = memory
        calls: LastCalls = before.before(chunk)
        earlier = len(before.row)
        source, target = self._links(calls.row, ends, earlier, len(chunk.layers))
        after, offset, expert = followers(earlier, source, target, calls.offset, calls.expert, width, followed)
        predicted = Predictions(after[:, 0].copy(), after[:, 1].astype(np.int32), offset, expert)
        return predicted, (width, followed, calls.last())

    def _links(self, row: NDArray[np.int32], ends: NDArray[np.bool_], earlier: int, layers: int) -> tuple[Any, Any]:
        """The call that each follows, i64 [calls] or -1, and the layer to predict after each, i32 [calls] or -1.

        row: i32 [calls], the first `earlier` of them from earlier chunks.
        """
        source = np.full(len(row), -1, np.int64)
        for layer in range(layers):
            own = np.flatnonzero(row == layer)
            source[own[1:]] = own[:-1]
        return source, row
