"""The install stream: what every routed call made the machine do."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class ReadAhead:
    """The experts read before they were asked for, in the order of the calls after which they were.

    after: i64 [reads], the routed call, -1 before the first. row: i32 [reads], the place of the layer in
    `trace.layers`. expert: i32 [reads]. used: i64 [reads], the routed call that first hit it, or -1.
    """

    after: NDArray[np.int64]
    row: NDArray[np.int32]
    expert: NDArray[np.int32]
    used: NDArray[np.int64]

    @staticmethod
    def of(reads: list[tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]]]) -> ReadAhead:
        """Put those of several pools together: after, row, expert, used of each."""
        none = np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.int64)
        after, row, expert, used = (np.concatenate(parts) for parts in zip(none, *reads, strict=True))
        order = np.argsort(after, kind="stable")
        return ReadAhead(after[order], row[order], expert[order], used[order])


@dataclass(frozen=True, eq=False)
class InstallStream:
    """One entry per routed call, in the order of the trace; all arrays i32 [calls] but where said.

    layer: i16. step: the step a call belongs to. n_tokens: tokens of the call.
    prefetch_issued: experts of any layer read ahead right after the call, or before the first.
    bytes_read, prefetch_bytes: i64, or None without geometry.
    ahead: what was read ahead, one expert after the other.
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
    prefetch_issued: NDArray[np.int32]
    bytes_read: NDArray[np.int64] | None
    prefetch_bytes: NDArray[np.int64] | None
    ahead: ReadAhead
