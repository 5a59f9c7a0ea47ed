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
from flashmoe_sim.trace.counting import count_requests
from flashmoe_sim.trace.routing import RoutingTrace


@dataclass(frozen=True, eq=False)
class Pool:
    """The calls of one pool.

    key: u32 [references]; expert number, in a global pool counted on over the layers.
    offset: i64 [calls + 1]; call: i64 [calls], the number of each call in the trace.
    row: i32 [calls], the layer's place in `trace.layers`; rows: those that occur.
    step: i32 [calls + 1], the step of each call, and last the number of steps of the trace.
    key_row: i32 [keys], the layer's place for every key.
    begin: i64 [calls], where the references of each call begin in the trace.
    """

    key: NDArray[np.uint32]
    offset: NDArray[np.int64]
    call: NDArray[np.int64]
    row: NDArray[np.int32]
    step: NDArray[np.int32]
    key_row: NDArray[np.int32]
    begin: NDArray[np.int64]

    @property
    def reference(self) -> NDArray[np.int64]:
        """Where each reference stands in the trace, i64 [references]."""
        return np.arange(len(self.key)) + np.repeat(self.begin - self.offset[:-1], np.diff(self.offset))

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
    def largest_call(self) -> int:
        """The most distinct keys of a call."""
        return int(self.requests.max())

    @cached_property
    def _distinct(self) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
        by_call = np.zeros(len(self.call), np.int32)
        by_key = np.zeros(self.keys, np.int64)
        first = np.full(self.keys, len(self.key), np.int64)
        count_requests(self.offset, self.key, np.full(self.keys, -1, np.int64), first, by_call, by_key)
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
    n_steps = steps[-1:] + np.int32(1)
    counts = [trace.n_experts[layer] for layer in trace.layers]
    row_of_layer = np.zeros(max(trace.layers, default=0) + 1, np.int32)
    row_of_layer[list(trace.layers)] = np.arange(len(trace.layers))
    row = row_of_layer[trace.layer]
    if scope == "global":
        base = np.concatenate([[0], np.cumsum(counts)]).astype(np.uint32)
        key = trace.expert.astype(np.uint32) + np.repeat(base[row], np.diff(trace.offset))
        key_row = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        call, step = np.arange(trace.calls), np.concatenate([steps, n_steps])
        return [Pool(key, trace.offset, call, row, step, key_row, trace.offset[:-1])]
    first_call = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(counts)))])
    call = np.empty(trace.calls, np.int64)
    offset = np.empty(trace.calls + len(counts), np.int64)
    key = np.empty(trace.refs, np.uint32)
    first_key = np.zeros(len(counts) + 1, np.int64)
    _group(row, trace.offset, trace.expert, first_call, first_key, call, offset, key)
    pools = []
    for number, n_experts in enumerate(counts):
        calls = call[first_call[number] : first_call[number + 1]]
        pools.append(
            Pool(
                key=key[first_key[number] : first_key[number + 1]],
                offset=offset[first_call[number] + number : first_call[number + 1] + number + 1],
                call=calls,
                row=np.full(len(calls), number, np.int32),
                step=np.concatenate([steps[calls], n_steps]),
                key_row=np.full(n_experts, number, np.int32),
                begin=trace.offset[calls],
            )
        )
    return pools


@jit
def _group(
    row: Any, begin: Any, expert: Any, first_call: Any, first_key: Any, call: Any, offset: Any, key: Any
) -> None:
    """Sort calls by row, keeping their order, and copy their experts together."""
    rows = len(first_key) - 1
    for c in range(len(row)):
        first_key[row[c] + 1] += begin[c + 1] - begin[c]
    for number in range(rows):
        first_key[number + 1] += first_key[number]
        offset[first_call[number] + number] = 0
    next_call = first_call[:-1].copy()
    next_key = first_key[:-1].copy()
    for c in range(len(row)):
        number = row[c]
        # Unsigned, here and below: numba then compiles no test for a negative index into each access.
        begin_from, begin_at = np.uint64(begin[c]), np.uint64(next_key[number])
        length = np.uint64(begin[c + 1]) - begin_from
        for r in range(length):
            key[begin_at + r] = expert[begin_from + r]
        next_key[number] += length
        call[next_call[number]] = c
        next_call[number] += 1
        offset[next_call[number] + number] = next_key[number] - first_key[number]


@jit
def _next_call(key: Any, offset: Any, upcoming: Any, out: Any) -> None:
    one = np.uint64(1)
    for call in range(len(offset) - 2, -1, -1):
        begin, end = np.uint64(offset[call]), np.uint64(offset[call + 1])
        for r in range(begin, end):
            out[r] = upcoming[key[r]]
        for back in range(end - begin):
            latest = end - one - back
            upcoming[key[latest]] = latest
