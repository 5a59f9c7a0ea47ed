"""The counters of a run, printed or predicted, in the form in which they are compared."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.residency.replay import Replay
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.trace.routing import RoutingTrace
from native_bridge.engines.run_log import Lines


@dataclass(frozen=True, eq=False)
class Predicted:
    """lines: the counters, as printed in the log. slot: i32 [references], or None if the mode keeps no tables.

    workload, replayed: what was replayed, for the seconds; replayed is None in the modes that only hit.
    shown_layers: the most layers with a line in a log. unknown: lines that cannot be predicted without a model.
    """

    lines: Lines
    slot: NDArray[np.int32] | None
    workload: Workload
    replayed: Replay | None = None
    shown_layers: int = 0
    unknown: tuple[str, ...] = ()


def first_calls(trace: RoutingTrace, calls: int) -> RoutingTrace:
    """The first calls of a trace, with only their routing and slots."""
    if calls >= trace.calls:
        return trace
    refs = int(trace.offset[calls])
    none = dict.fromkeys(("weight", "resident", "phase", "sequence", "step", "n_text"))
    return trace.with_(
        layer=trace.layer[:calls],
        n_tokens=trace.n_tokens[:calls],
        offset=trace.offset[: calls + 1],
        expert=trace.expert[:refs],
        slot=None if trace.slot is None else trace.slot[:refs],
        **none,
    )
