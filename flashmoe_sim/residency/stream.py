"""The install stream: what every routed call made the machine do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.trace.calls import run_starts
from flashmoe_sim.trace.routing import RoutingTrace


@dataclass(frozen=True, eq=False)
class ReadAhead:
    """The experts read before they were requested, in the order of the calls after which they were read.

    after: i64 [reads], the routed call, -1 before the first. row: i32 [reads], the place of the layer in
    `trace.layers`. expert: i32 [reads]. used: i64 [reads], the routed call that first hit it, or -1.
    cold: u8 [reads], 1 if its bank had never been full; for a bank in bytes as if the experts that ever came into free
    room had come one by one.
    """

    after: NDArray[np.int64]
    row: NDArray[np.int32]
    expert: NDArray[np.int32]
    used: NDArray[np.int64]
    cold: NDArray[np.uint8]

    @staticmethod
    def of(pools: list[ReadAhead]) -> ReadAhead:
        """Join the reads of several pools."""

        def column(name: str, kind: type) -> NDArray[Any]:
            return np.concatenate([np.empty(0, kind), *(getattr(one, name) for one in pools)])

        order = np.argsort(column("after", np.int64), kind="stable")
        kinds = {"after": np.int64, "row": np.int32, "expert": np.int32, "used": np.int64, "cold": np.uint8}
        return ReadAhead(**{name: column(name, kind)[order] for name, kind in kinds.items()})


@dataclass(frozen=True, eq=False)
class InstallStream:
    """One entry per routed call, in the order of the trace; all arrays i32 [calls] unless noted.

    layer: i16. step: the step a call belongs to. n_tokens: tokens of the call.
    prefetch_issued: experts of any layer read ahead right after the call; for the first call also those before it.
    bytes_read, prefetch_bytes: i64, or None without geometry.
    ahead: the experts read ahead, one by one.
    """

    layer: NDArray[np.int16]
    step: NDArray[np.int32]
    n_tokens: NDArray[np.int32]
    requests: NDArray[np.int32]
    hits: NDArray[np.int32]
    misses: NDArray[np.int32]
    cold: NDArray[np.int32]
    evictions: NDArray[np.int32]
    aliased: NDArray[np.int32]
    bypassed: NDArray[np.int32]
    minor: NDArray[np.int32]
    prefetch_issued: NDArray[np.int32]
    bytes_read: NDArray[np.int64] | None
    prefetch_bytes: NDArray[np.int64] | None
    ahead: ReadAhead

    @property
    def first_calls(self) -> NDArray[np.int64]:
        """The first call of each step, i64 [steps]."""
        return run_starts(self.step)

    def by_step(self, calls: NDArray[Any]) -> NDArray[np.int64]:
        """The sum over each step's calls, i64 [steps]. calls: a number of each call."""
        first = self.first_calls
        return np.add.reduceat(calls.astype(np.int64), first) if len(first) else np.zeros(0, np.int64)


def distinct(trace: RoutingTrace, chosen: NDArray[np.bool_]) -> NDArray[np.int32]:
    """How many different experts of each call are among the chosen references: i32 [calls].

    chosen: bool [references]; the same for all references of an expert in a call.
    """
    call = np.repeat(np.arange(trace.calls), np.diff(trace.offset))[chosen]
    experts = int(trace.expert.max(initial=0)) + 1
    of_call = np.unique(call * experts + trace.expert[chosen]) // experts
    return np.bincount(of_call, minlength=trace.calls).astype(np.int32)
