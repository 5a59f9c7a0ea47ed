"""What one bank serves: the routed calls of one layer, or of all layers together, as the replay loops take them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim._jit import jit
from flashmoe_sim.policies.bank import Scope
from flashmoe_sim.policies.base import NEVER
from flashmoe_sim.trace.routing import RoutingTrace


@dataclass(frozen=True, eq=False)
class Pool:
    """The calls of one pool.

    key: u32 [references]; expert number, in a global pool counted on over the layers.
    offset: i64 [calls + 1]; call: i64 [calls], the number of each call in the trace.
    row: i32 [calls], the layer's place in `trace.layers`; rows: those that occur.
    steps_before: i32 [calls + 1], steps that ended since the pool's previous call, and after the last.
    key_row: i32 [keys], the layer's place for every key.
    reference: where the references stand in the trace: a slice or i64 [references].
    """

    key: NDArray[np.uint32]
    offset: NDArray[np.int64]
    call: NDArray[np.int64]
    row: NDArray[np.int32]
    steps_before: NDArray[np.int32]
    key_row: NDArray[np.int32]
    reference: NDArray[np.int64]

    @property
    def keys(self) -> int:
        return len(self.key_row)

    @property
    def requests(self) -> NDArray[np.int32]:
        """Distinct keys of each call, i32 [calls]."""
        return self._distinct[0]

    @property
    def requests_by_key(self) -> NDArray[np.int64]:
        """How many calls ask for each key, i64 [keys]."""
        return self._distinct[1]

    @property
    def first_reference(self) -> NDArray[np.int64]:
        """The first reference to each key, or the number of references where there is none; i64 [keys]."""
        return self._distinct[2]

    @cached_property
    def _distinct(self) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
        by_call = np.zeros(len(self.call), np.int32)
        by_key = np.zeros(self.keys, np.int64)
        first = np.full(self.keys, len(self.key), np.int64)
        _count_distinct(self.key, self.offset, np.full(self.keys, -1, np.int64), by_call, by_key, first)
        return by_call, by_key, first

    @cached_property
    def next_call(self) -> NDArray[np.int32]:
        """For each reference where the next call that asks for its key does so, or NEVER; i32 [references]."""
        out = np.empty(len(self.key), np.int32)
        _next_call(self.key, self.offset, np.full(self.keys, NEVER, np.int32), out)
        return out

    @cached_property
    def next_reference(self) -> NDArray[np.int32]:
        """For each reference the next one to its key, or NEVER; i32 [references]."""
        out = np.empty(len(self.key), np.int32)
        each = np.arange(len(self.key) + 1, dtype=np.int64)
        _next_call(self.key, each, np.full(self.keys, NEVER, np.int32), out)
        return out


def build_pools(trace: RoutingTrace, *, scope: Scope = "layer") -> list[Pool]:
    """The pools of a trace: one per layer in the order of `trace.layers`, or one for all."""
    steps = trace.steps
    n_steps = int(steps[-1]) + 1 if trace.calls else 0
    counts = [trace.n_experts[layer] for layer in trace.layers]
    row_of = np.searchsorted(np.array(trace.layers), trace.layer).astype(np.int32)
    if scope == "global":
        base = np.concatenate([[0], np.cumsum(counts)]).astype(np.uint32)
        key = trace.expert.astype(np.uint32) + np.repeat(base[row_of], np.diff(trace.offset))
        return [
            Pool(
                key=key,
                offset=trace.offset,
                call=np.arange(trace.calls),
                row=row_of,
                steps_before=_steps_before(steps, n_steps),
                key_row=np.repeat(np.arange(len(counts), dtype=np.int32), counts),
                reference=np.arange(trace.refs),
            )
        ]
    pools = []
    for row, view in enumerate(trace.by_layer):
        length = np.diff(view.offset)
        pools.append(
            Pool(
                key=view.expert.astype(np.uint32),
                offset=view.offset,
                call=view.call,
                row=np.full(len(view.call), row, np.int32),
                steps_before=_steps_before(steps[view.call], n_steps),
                key_row=np.full(counts[row], row, np.int32),
                reference=np.arange(len(view.expert)) + np.repeat(trace.offset[view.call] - view.offset[:-1], length),
            )
        )
    return pools


def _steps_before(steps: NDArray[np.int32], n_steps: int) -> NDArray[np.int32]:
    return np.diff(steps, prepend=steps[:1], append=n_steps).astype(np.int32)


@jit
def _count_distinct(key: Any, offset: Any, seen: Any, by_call: Any, by_key: Any, first: Any) -> None:
    for call in range(len(by_call)):
        n = 0
        for r in range(offset[call], offset[call + 1]):
            k = key[r]
            if seen[k] != call:
                seen[k] = call
                by_key[k] += 1
                first[k] = min(first[k], r)
                n += 1
        by_call[call] = n


@jit
def _next_call(key: Any, offset: Any, upcoming: Any, out: Any) -> None:
    for call in range(len(offset) - 2, -1, -1):
        for r in range(offset[call], offset[call + 1]):
            out[r] = upcoming[key[r]]
        for r in range(offset[call + 1] - 1, offset[call] - 1, -1):
            upcoming[key[r]] = r
