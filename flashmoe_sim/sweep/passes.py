"""From tasks to passes: units of work for one worker, as values that can be sent to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flashmoe_sim.ceilings.optimum import ceiling_setup
from flashmoe_sim.io.errors import BadInput, SimError
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.prefetchers.none import NoPrefetch
from flashmoe_sim.residency.counts import Counts
from flashmoe_sim.residency.many import PARTS, SIZES, CountPass, fitting, plan_counts
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.workload import Setup, Workload
from flashmoe_sim.sweep.task import Task, seconds
from flashmoe_sim.timeline.assemble import Conditions, DoesNotFit
from flashmoe_sim.timeline.from_replay import time_replay
from flashmoe_sim.trace.long_traces import OnDisk

Refused = dict[tuple[str, Setup], BadInput]  # by the workload's content id

# Measured by tests/benchmarks/bench_sweep.py on one thread of a two-core virtual machine; policies and contracts differ
# by up to a factor of 3 in either direction.
ONE_PASS_NS = 40  # per reference and policy, whatever the number of sizes
WALK_NS = 35  # per reference and size
TIMED_NS = 60  # per reference, to record a replay
MACHINE_NS = 2200  # per routed call and machine, with the interval of its speed


@dataclass(frozen=True)
class OnMachines:
    """One setup under some conditions, and the machines on which its one replay is timed."""

    setup: Setup
    conditions: Conditions
    machines: tuple[Machine, ...]


@dataclass(frozen=True)
class TimedPass:
    """Replays of banks of several sizes, one after another, each timed on its machines."""

    replays: tuple[OnMachines, ...]

    def run(self, workload: Workload) -> list[tuple[Counts, list[dict[str, Any]]]]:
        """The counts of each setup, and its columns of schema.TIMING on each of its machines."""
        return [_timed(workload, one) for one in self.replays]


@dataclass(frozen=True)
class Pass:
    """Work on the workload with this content id."""

    workload_id: str
    work: CountPass | TimedPass

    def ns(self, workload: Workload) -> float:
        """About how long it takes on one thread, without predictors, which run once for all passes."""
        trace, work = workload.trace, self.work
        if isinstance(work, TimedPass):
            machines = sum(len(one.machines) for one in work.replays)
            return trace.refs * TIMED_NS * len(work.replays) + trace.calls * MACHINE_NS * machines
        pools = len(trace.layers) if work.setups[0].scope == "layer" else 1
        each = ONE_PASS_NS * len({setup.policy for setup in work.setups})
        if work.kind in {"walk", "alone"}:
            each = WALK_NS * len(work.setups)
        return trace.refs * len(work.part) / pools * each


def run_passes(passes: Sequence[Pass], workload: Workload) -> list[list[Any]]:
    """A worker's job: `run_pass` for each of these passes over the workload that was sent to it."""
    return [run_pass(one, workload) for one in passes]


def run_pass(one: Pass, workload: Workload) -> list[Any]:
    """The counts of each setup of a CountPass, in order, or the result of a TimedPass for each.

    Raises SimError if it is not the pass's workload.
    """
    if workload.content_id != one.workload_id:
        raise SimError(f"a worker holds {workload!r} with content {workload.content_id}, not {one.workload_id}")
    if isinstance(one.work, TimedPass):
        return one.work.run(workload)
    counts = one.work.run(workload)
    return [counts[setup] for setup in one.work.setups]


def plan_passes(tasks: Sequence[Task], *, refused: Refused | None = None) -> list[Pass]:
    """Passes that together count and time every task, and count the optimum in its bank.

    Tasks that differ only in their machines share one replay; sizes of one policy share passes.
    refused: receives the setups whose banks do not fit their workload, and why; they get no pass.
    Raises BadInput for a setup that does not fit, without `refused`.
    """
    of_workload: dict[str, list[Task]] = {}
    for task in tasks:
        of_workload.setdefault(task.workload.content_id, []).append(task)
    passes = []
    for workload_id, some in of_workload.items():
        workload, errors = some[0].workload, None if refused is None else dict[Setup, BadInput]()
        counted = [task.setup for task in some if task.machine is None]
        ceilings = [ceiling_setup(workload, task.setup) for task in some]
        wanted = [*counted, *(setup for setup in ceilings if setup is not None)]
        timed = [task for task in some if task.machine is not None]
        setups = [setup for setup, _ in fitting(workload, (task.setup for task in timed), refused=errors)]
        work: list[CountPass | TimedPass] = [
            *plan_counts(workload, wanted, refused=errors),
            *_timed_passes(timed, set(setups)),
        ]
        if errors is None or any(task.setup not in errors for task in some):
            passes += [Pass(workload_id, one) for one in work]
        if refused is not None and errors is not None:
            refused |= {(workload_id, setup): error for setup, error in errors.items()}
    return passes


def _timed_passes(tasks: Sequence[Task], fit: set[Setup]) -> list[TimedPass]:
    machines: dict[tuple[Setup, Conditions], dict[Machine, None]] = {}
    for task in tasks:
        if task.setup in fit and task.machine is not None and task.conditions is not None:
            machines.setdefault((task.setup, task.conditions), {})[task.machine] = None
    sizes: dict[Any, list[OnMachines]] = {}
    for (setup, conditions), on in machines.items():
        alike = (setup.policy, setup.contract, setup.scope, setup.prefetch)
        sizes.setdefault(alike, []).append(OnMachines(setup, conditions, tuple(on)))
    passes = []
    for group in sizes.values():
        shares = max(min(PARTS, len(group)), -(-len(group) // SIZES))
        passes += [TimedPass(tuple(group[number::shares])) for number in range(shares)]
    return passes


def _timed(workload: Workload, one: OnMachines) -> tuple[Counts, list[dict[str, Any]]]:
    replayed = replay(workload, one.setup, record=True)
    on = []
    for machine in one.machines:
        task = Task(workload, one.setup, machine, one.conditions)
        try:
            timed = time_replay(workload, replayed, machine, one.conditions)
        except DoesNotFit:
            timed = None
        on.append(seconds(task, timed))
    return replayed.counts, on


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
