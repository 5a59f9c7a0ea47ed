"""The experts of the most similar past step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim._jit import allocating
from flashmoe_sim.parameters import INT32, Limits
from flashmoe_sim.prefetchers.base import (
    Memory,
    PastOnly,
    Predictions,
    default_width,
    most_experts,
    rows_of,
    step_ends,
)
from flashmoe_sim.trace.long_traces import OnDisk
from flashmoe_sim.trace.routing import RoutingTrace


class StepMemory(NamedTuple):
    """The stored steps and the current one; a step is the set of (layer, expert) that it requested.

    reach: layers ahead. width: experts for the next layer; at most all of a layer's.
    requested: u8 [layers, experts, stored], by the step in each place. order: i16 [stored, layers, kept width], the
        first experts of each, in order. size, common: i64 [stored], how many experts each step requested, and how many
        of them the current step did. current, current_order, filled: the same for the current step, and how much of
        its order is filled.
    numbers: i64 [3], how many the current step requested, how many are stored, and the next one's place.
    """

    reach: int
    width: int
    requested: NDArray[np.uint8]
    order: NDArray[np.int16]
    size: NDArray[np.int64]
    common: NDArray[np.int64]
    current: NDArray[np.uint8]
    current_order: NDArray[np.int16]
    filled: NDArray[np.int64]
    numbers: NDArray[np.int64]


@allocating
def nearest_steps(row: Any, ends: Any, offset: Any, expert: Any, memory: Any) -> Any:
    """After every call, predict the next `reach` layers from the stored step most like the current one so far.

    ends: bool [calls + 1]. memory: a `StepMemory`, updated.
    """
    reach, width, requested, order, size, common, current, current_order, filled, numbers = memory
    calls, kept_width = len(row), order.shape[2]
    layers, experts, stored = requested.shape
    after = np.empty((calls * reach, 2), np.int64)
    offsets = np.zeros(calls * reach + 1, np.int64)
    out = np.empty(calls * reach * kept_width, np.int16)
    requested_now, kept, place = numbers[0], numbers[1], numbers[2]
    n, at = 0, 0
    for call in range(calls + 1):
        if ends[call]:
            for layer in range(layers):  # loops: numba takes two seconds to compile assignments of whole arrays
                for e in range(experts):
                    requested[layer, e, place] = current[layer, e]
                    current[layer, e] = 0
                for i in range(kept_width):
                    order[place, layer, i] = current_order[layer, i]
                    current_order[layer, i] = -1
                filled[layer] = 0
            for s in range(stored):
                common[s] = 0
            size[place] = requested_now
            place = (place + 1) % stored
            kept = min(kept + 1, stored)
            requested_now = 0
        if call == calls:
            break
        layer = row[call]
        for r in range(offset[call], offset[call + 1]):
            e = expert[r]
            if current[layer, e]:
                continue
            current[layer, e] = 1
            requested_now += 1
            if filled[layer] < kept_width:
                current_order[layer, filled[layer]] = e
                filled[layer] += 1
            with_it = requested[layer, e]
            for s in range(kept):
                common[s] += with_it[s]
        # The largest cosine common / sqrt(size of this * size of that); of equals the most recent step.
        best = -1
        for back in range(kept):
            s = (place - 1 - back) % stored
            if common[s] > 0 and (best < 0 or common[s] ** 2 * size[best] > common[best] ** 2 * size[s]):
                best = s
        for ahead in range(layer + 1, min(layer + 1 + reach, layers)):
            if best < 0:
                break
            after[n, 0] = call
            after[n, 1] = ahead
            # Layer-decayed: the further ahead, the fewer.
            for i in range(min(max(width // (ahead - layer), 1), kept_width)):
                if order[best, ahead, i] >= 0:
                    out[at] = order[best, ahead, i]
                    at += 1
            n += 1
            offsets[n] = at
    numbers[0], numbers[1], numbers[2] = requested_now, kept, place
    return after[:n], offsets[: n + 1], out[:at]


@dataclass(frozen=True)
class Eam(PastOnly):
    """After every call, prefetch for the next layers what they requested in the most similar past step.

    A step is an expert activation matrix: which experts each layer requested. The stored matrix with the largest cosine
    to the layers known so far is used; among equals the most recent. The next layer gets `width` experts, the one after
    it half as many, then a third, and so on, each in router order. MoE-Infinity stores one matrix per request and adds
    up its steps; a trace of one text has one request, so here the steps themselves are stored.
    stored: past steps kept. reach: layers ahead. width: experts for the next layer; 0: as many as a token uses.
    """

    name: ClassVar[str] = "eam"
    source: ClassVar[str] = "MoE-Infinity (arXiv 2401.14361), §4: expert activation matrices"
    lead: ClassVar[str] = "up to `reach` layers"
    limits: ClassVar[Limits] = {"stored": (1, INT32), "reach": (1, INT32), "width": (0, INT32)}

    stored: int = 128
    reach: int = 4
    width: int = 0

    def begin(self, trace: RoutingTrace) -> Memory:
        layers, experts = len(trace.layers), most_experts(trace)
        stored = self.stored
        if not isinstance(trace, OnDisk):
            stored = min(stored, int(step_ends(trace.steps).sum()))
        width = self.width or default_width(trace)
        kept_width = min(width, experts)
        size, common = np.zeros((2, stored), np.int64)
        return StepMemory(
            min(self.reach, layers),
            width,
            np.zeros((layers, experts, stored), np.uint8),
            np.full((stored, layers, kept_width), -1, np.int16),
            size,
            common,
            np.zeros((layers, experts), np.uint8),
            np.full((layers, kept_width), -1, np.int16),
            np.zeros(layers, np.int64),
            np.zeros(3, np.int64),
        )

    def follow(self, chunk: RoutingTrace, ends: NDArray[np.bool_], memory: Memory) -> tuple[Predictions, Memory]:
        after, offset, expert = nearest_steps(rows_of(chunk), ends, chunk.offset, chunk.expert, memory)
        return Predictions(after[:, 0].copy(), after[:, 1].astype(np.int32), offset, expert), memory
