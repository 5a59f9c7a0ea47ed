"""The counters of a run, printed or predicted, as both sides of a comparison have them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.residency.replay import Replay
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.trace.routing import RoutingTrace

Lines = dict[str, dict[str, str]]


@dataclass(frozen=True, eq=False)
class Predicted:
    """lines: the counters, as the log prints them. slot: i32 [references], or None if the mode keeps no tables.

    workload, replayed: what was replayed, for the seconds; replayed is None in the modes that only hit.
    shown_layers: most layers that have a line in a log. unknown: lines that nothing predicts without a model.
    """

    lines: Lines
    slot: NDArray[np.int32] | None
    workload: Workload
    replayed: Replay | None = None
    shown_layers: int = 0
    unknown: tuple[str, ...] = ()


def first_calls(trace: RoutingTrace, calls: int) -> RoutingTrace:
    """The first calls of a trace, without what the recording tells of them beside routing and slots."""
    if calls >= trace.calls:
        return trace
    refs = int(trace.offset[calls])
    none = dict.fromkeys(("weight", "resident", "phase", "sequence", "step"))
    return trace.with_(
        layer=trace.layer[:calls],
        n_tokens=trace.n_tokens[:calls],
        offset=trace.offset[: calls + 1],
        expert=trace.expert[:refs],
        slot=None if trace.slot is None else trace.slot[:refs],
        **none,
    )
