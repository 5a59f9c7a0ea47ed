"""The routed call in which a run failed because its bank was too small."""

from __future__ import annotations

import numpy as np

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.residency.workload import prepare
from flashmoe_sim.trace.load import load_trace
from flashmoe_sim.trace.routing import RoutingTrace
from native_bridge.check.folder import RunFolder, RunFolders


def failing_call(folder: RunFolder, trace: RoutingTrace, among: RunFolders) -> tuple[tuple[int, int], str]:
    """Layer and references of the call that found no slot, and how they are known.

    The call is not in the trace: it comes from a run that went through the same calls and beyond, else from the log.
    """
    overflow, slots = folder.run.log.overflow, folder.run.bank
    assert overflow is not None
    for other in among.others(folder):
        if other.run.trace is None or other.run.ubatch != folder.run.ubatch or other.run.bank <= slots:
            continue
        longer = load_trace(other.run.trace)
        if longer.calls <= trace.calls or not _begins_with(longer, trace):
            continue
        calls = prepare(longer, folder.model).layer_pools
        wide = [int(pool.call[np.argmax(pool.requests > slots)]) for pool in calls if pool.largest_call > slots]
        if not wide or min(wide) != trace.calls:
            found = f"first in call {min(wide)}" if wide else "in none"
            raise BadInput(
                f"{folder.place}: the runtime failed in call {trace.calls}, but by the trace of {other.name} a bank of "
                f"{slots} fails {found}"
            )
        at = trace.calls
        union = len(np.unique(longer.expert[longer.offset[at] : longer.offset[at + 1]]))
        layer, refs = int(longer.layer[at]), int(longer.offset[at + 1] - longer.offset[at])
        note = f"fails in call {at} (layer {layer}), as predicted: {union} experts by the trace of {other.name}"
        return (layer, refs), note
    refs = folder.run.log.routed.refs - trace.refs if folder.run.log.routed else 0
    return (overflow.layer, refs), f"fails in call {trace.calls}; no other run shows what it asks for"


def _begins_with(longer: RoutingTrace, trace: RoutingTrace) -> bool:
    return (
        np.array_equal(longer.layer[: trace.calls], trace.layer)
        and np.array_equal(longer.offset[: trace.calls + 1], trace.offset)
        and np.array_equal(longer.expert[: trace.refs], trace.expert)
    )
