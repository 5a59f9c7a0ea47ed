"""The time and memory of a planned sweep, estimated from the sizes of its traces before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flashmoe_sim.prefetchers.none import NoPrefetch
from flashmoe_sim.residency.many import CountPass
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.sweep.passes import Pass
from flashmoe_sim.trace.on_disk import OnDisk

PREDICTION_NS = 200  # per reference and predictor; measured like the times in passes.py
PROGRAM_BYTES, CALL_BYTES, REFERENCE_BYTES = 250 << 20, 40, 24  # the trace with its pools
RECORDED_CALL_BYTES = 400  # while one replay is timed


@dataclass(frozen=True)
class SweepEstimate:
    """seconds: on the given threads, without compilation in the first run. memory_bytes: an upper bound."""

    seconds: float
    threads: int
    memory_bytes: int


def estimate(passes: Sequence[Pass], workloads: Sequence[Workload], *, threads: int) -> SweepEstimate:
    """Right within a factor of about 3 (measured: 0.9 to 2.2 times as long), beside start and compiling.

    The cost of a reference depends on the policy, the contract and the machine.
    """
    of_id = {workload.content_id: workload for workload in workloads}
    predicted: set[tuple[str, object]] = set()
    total_ns, recorded_bytes = 0.0, 0
    for one in passes:
        trace, work = of_id[one.workload_id].trace, one.work
        total_ns += one.ns(of_id[one.workload_id])
        if isinstance(work, CountPass):
            setups = work.setups
        else:
            setups = tuple(one.setup for one in work.replays)
            recorded_bytes = max(recorded_bytes, trace.calls * RECORDED_CALL_BYTES)
        for setup in setups:
            if not isinstance(setup.prefetch, NoPrefetch):
                predicted.add((one.workload_id, setup.prefetch))
    total_ns += sum(of_id[workload_id].trace.refs * PREDICTION_NS for workload_id, _ in predicted)
    kept = sum(map(kept_bytes, of_id.values()))
    return SweepEstimate(total_ns / 1e9 / threads, threads, PROGRAM_BYTES + kept + threads * recorded_bytes)


def kept_bytes(workload: Workload) -> int:
    """Memory of a trace with its pools, at most."""
    if isinstance(workload.trace, OnDisk):
        return 0
    return workload.trace.calls * CALL_BYTES + workload.trace.refs * REFERENCE_BYTES
