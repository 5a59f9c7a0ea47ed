"""What stage 2 takes of stage 1."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Work:
    """What every routed call asks of a machine, in order; all i32 [calls] but where said.

    row: the place of the call's layer in `RoutingTrace.layers`.
    step: never decreases; the calls of a step are consecutive.
    n_tokens: tokens of the call; 0 where the recording does not tell.
    refs, requests, misses: references, distinct experts, and those of them that were not resident.
    warm: how many of the misses the page cache serves.
    cold: how many of the misses were installed where nothing was displaced.
    phase: u8 [calls], as in trace/routing.py.
    ahead_after: i64 [ahead], ascending: the routed call after which each expert read ahead was issued, -1: before the
        first.
    ahead_row: i32 [ahead]. ahead_warm: u8 [ahead], 1 where the page cache serves it.
    ahead_used: i64 [ahead], the routed call whose hit first uses it, after `ahead_after` and of the same row; -1 where
        there is none.
    """

    row: NDArray[np.int32]
    step: NDArray[np.int32]
    n_tokens: NDArray[np.int32]
    refs: NDArray[np.int32]
    requests: NDArray[np.int32]
    misses: NDArray[np.int32]
    warm: NDArray[np.int32]
    cold: NDArray[np.int32]
    phase: NDArray[np.uint8]
    ahead_after: NDArray[np.int64]
    ahead_row: NDArray[np.int32]
    ahead_warm: NDArray[np.uint8]
    ahead_used: NDArray[np.int64]
