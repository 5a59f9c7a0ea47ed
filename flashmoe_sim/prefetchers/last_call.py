"""The runtime's three modes, which prefetch what each layer requested last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim._jit import allocating
from flashmoe_sim.prefetchers.base import NO_CALLS, LastCalls, Memory, PastOnly, Predictions
from flashmoe_sim.trace.routing import RoutingTrace


@allocating
def last_calls(row: Any, ends: Any, offset: Any, expert: Any, width: int, last: Any, after: Any, out: Any) -> Any:
    """After every step, for each layer that had a call, predict the experts of its last call, if it requested any.

    row, offset, expert: the calls, preceded by the earlier ones that `last` names. ends: bool [calls + 1].
    width: how many references, from the first on; 0 for all. last: i64 [layers], the last call of each so far, or -1.
    after: i64 [predictions, 2], set to call and layer; out: i16, set to the experts. Both may be too short: nothing is
    written beyond them, and the lengths needed are returned, with the offsets of the predictions.
    """
    calls, predictions, experts = len(ends) - 1, 0, 0
    earlier = len(row) - calls
    offsets = np.zeros(len(after) + 1, np.int64)
    for call in range(calls + 1):
        if ends[call]:
            for layer in range(len(last)):
                if last[layer] < 0 or offset[last[layer]] == offset[last[layer] + 1]:
                    continue
                begin, end = offset[last[layer]], offset[last[layer] + 1]
                if width:
                    end = min(end, begin + width)
                if predictions < len(after):
                    after[predictions, 0] = call - 1
                    after[predictions, 1] = layer
                    for r in range(begin, end):
                        out[experts + r - begin] = expert[r]
                    offsets[predictions + 1] = experts + end - begin
                predictions += 1
                experts += end - begin
        if call < calls:
            last[row[earlier + call]] = earlier + call
    return predictions, experts, offsets


@dataclass(frozen=True)
class LastCall(PastOnly):
    """After every step, each layer prefetches experts of its own last call, in their order.

    After a call without tokens it prefetches none until its next call.
    width: how many of the call's references, from the first on; 0 for all.
    """

    source: ClassVar[str] = "the patched llama.cpp runtime"
    lead: ClassVar[str] = "until the layer's next call"
    width: ClassVar[int] = 0

    def begin(self, trace: RoutingTrace) -> Memory:
        return (NO_CALLS,)

    def follow(self, chunk: RoutingTrace, ends: NDArray[np.bool_], memory: Memory) -> tuple[Predictions, Memory]:
        earlier: LastCalls = memory[0]
        calls = earlier.before(chunk)
        last = np.full(len(chunk.layers), -1, np.int64)
        last[earlier.row] = np.arange(len(earlier.row))
        given = (calls.row, ends, calls.offset, calls.expert, self.width)
        none = (np.empty((0, 2), np.int64), np.empty(0, np.int16))
        predictions, experts, _ = last_calls(*given, last.copy(), *none)
        after, expert = np.empty((predictions, 2), np.int64), np.empty(experts, np.int16)
        _, _, offset = last_calls(*given, last, after, expert)
        return Predictions(after[:, 0].copy(), after[:, 1].astype(np.int32), offset, expert), (calls.last(),)


@dataclass(frozen=True)
class Temporal(LastCall):
    """After every step, each layer prefetches the union of its last call."""

    name: ClassVar[str] = "temporal"


@dataclass(frozen=True)
class PredictPrev(LastCall):
    """After every step, each layer predicts the union of its last call and prefetches it."""

    name: ClassVar[str] = "predict-prev"


@dataclass(frozen=True)
class PredictTop1(LastCall):
    """After every step, each layer predicts the first expert of its last call and prefetches it."""

    name: ClassVar[str] = "predict-top1"
    width: ClassVar[int] = 1
