"""The install stream: what every routed call made the machine do."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class InstallStream:
    """One entry per routed call, in the order of the trace; all arrays i32 [calls] but where said.

    layer: i16. step: the step a call belongs to. n_tokens: tokens of the call.
    prefetch_issued: experts of any layer read ahead right after the call, or before the first.
    bytes_read, prefetch_bytes: i64, or None without geometry.
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
