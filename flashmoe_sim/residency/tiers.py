"""Several tiers that hold experts: what each of them serves of every routed call."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.trace.routing import RoutingTrace


def distinct(trace: RoutingTrace, chosen: NDArray[np.bool_]) -> NDArray[np.int32]:
    """How many different experts of each call are among the chosen references: i32 [calls].

    chosen: bool [references]; the same for all references of an expert in a call.
    """
    call = np.repeat(np.arange(trace.calls), np.diff(trace.offset))[chosen]
    experts = int(trace.expert.max(initial=0)) + 1
    of_call = np.unique(call * experts + trace.expert[chosen]) // experts
    return np.bincount(of_call, minlength=trace.calls).astype(np.int32)
