"""How fast seconds are: events a second on one core, and as a ratio to the same events on SimPy.

Run with `python -m tests.benchmarks.bench_timeline`. An event is the start of a read, an upload or a computation. The
work is a decode of 8 experts a call, of which 2 miss, in 12 reads each, on a machine of 8 lanes; with reads ahead, one
expert after every call, of which half are used. Every figure is the median of interleaved rounds in thread CPU time,
and has the checks of work and result in it. Last, a sweep of 16 banks on five machines, and comparing all systems on
three.
"""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial

import numpy as np

from flashmoe_sim.geometry.model import LayerGeometry, ModelGeometry
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.sweep.plan import plan_setup
from flashmoe_sim.sweep.task import Task, seconds
from flashmoe_sim.systems.base import Case
from flashmoe_sim.systems.compare import compare
from flashmoe_sim.systems.table import SYSTEMS
from flashmoe_sim.timeline.assemble import Conditions, DoesNotFit
from flashmoe_sim.timeline.from_replay import time_replay
from flashmoe_sim.timeline.models.table import EXECUTION_MODELS, parse_execution
from flashmoe_sim.timeline.names import ON_HOST
from flashmoe_sim.timeline.run import simulate
from flashmoe_sim.timeline.work import Costs, Work
from flashmoe_sim.trace.cut import cut
from tests.benchmarks.bench_replay import TOP_K, medians, router
from tests.timeline.naive.table import TWINS

ROUNDS, ROUNDS_BESIDE_SIMPY = 7, 3
ROWS, EXPERTS, MISSES, CHUNKS, FAMILIES, LANES = 40, 8, 2, 12, 3, 8
CALLS, CALLS_BESIDE_SIMPY = 100_000, 2_000
SWEEP_TOKENS, SWEEP_LAYERS, SWEEP_GOAL_S, COMPARE_GOAL_S = 12_000, 60, 30, 20
MACHINES = ("m3-max-48", "m4-max-128", "m5-max-128", "strix-halo-128", "rtx-5090")
COMPARED = ("rtx-4090", "m4-max-128", "strix-halo-128")
EVENTS_GOAL, RATIO_GOAL = 5e6, 100


def decode(calls: int, *, ahead: bool, seed: int = 1) -> tuple[Work, Costs]:
    """Work and costs near those of a 40-layer model on a laptop whose storage is the bottleneck."""
    rng = np.random.default_rng(seed)
    row = (np.arange(calls) % ROWS).astype(np.int32)

    def all_calls(value: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        return np.full(calls, value, np.int32)

    after = np.arange(calls - 1) if ahead else np.arange(0)
    work = Work(
        row=row,
        step=(np.arange(calls) // ROWS).astype(np.int32),
        n_tokens=all_calls(1),
        n_text=all_calls(1),
        drafted=all_calls(0),
        refs=all_calls(EXPERTS),
        requests=all_calls(EXPERTS),
        misses=all_calls(MISSES),
        warm=all_calls(0),
        cold=all_calls(0),
        installs=all_calls(0),
        phase=np.full(calls, 2, np.uint8),
        ahead_after=after,
        ahead_row=row[after + 1],
        ahead_warm=np.zeros(len(after), np.uint8),
        ahead_cold=np.zeros(len(after), np.uint8),
        ahead_used=np.where(rng.random(len(after)) < 0.5, after + 1, -1),
    )
    read_s = np.sort(rng.uniform(1e-4, 4e-4, (ROWS, LANES)))
    costs = Costs(
        dense_s=rng.uniform(1e-4, 3e-4, ROWS),
        expert_s=np.full(ROWS, 3e-5),
        cold_expert_s=np.full(ROWS, 1e-4),
        dense_knee_tokens=8.0,
        knee_tokens=8.0,
        cold_knee_tokens=4.0,
        added_from=9,
        padded_tokens=64.0,
        chunks=np.full(ROWS, CHUNKS, np.int32),
        chunk_s=read_s,
        warm_chunk_s=read_s / 5,
        fill_s=np.zeros(len(read_s)),
        upload_s=np.full(ROWS, 1e-4),
        memory_s=np.zeros(ROWS),
        family_chunks=np.full((ROWS, FAMILIES), CHUNKS // FAMILIES, np.int32),
        family_chunk_s=np.repeat(read_s[:, None], FAMILIES, 1),
        family_warm_chunk_s=np.repeat(read_s[:, None] / 5, FAMILIES, 1),
        family_fill_s=np.zeros((ROWS, FAMILIES)),
        family_upload_s=np.full((ROWS, FAMILIES), 1e-4 / FAMILIES),
        attention_s=0.0,
        attention_token_s=0.0,
        call_s=1e-5,
        hit_call_s=1e-5,
        install_s=5e-6,
        resume_s=0.0,
        merge_s=2e-5,
        step_s=5e-4,
    )
    return work, costs


def events_of(work: Work, costs: Costs, name: str) -> int:
    spans = simulate(work, costs, parse_execution(name), record=True).spans
    assert spans is not None
    return int(np.count_nonzero(spans["resource"] != ON_HOST))


def ours(work: Work, costs: Costs, name: str) -> None:
    simulate(work, costs, parse_execution(name))


def on_one_core(*, ahead: bool) -> None:
    work, costs = decode(CALLS, ahead=ahead)
    print(f"\n{CALLS:,} calls, {'with' if ahead else 'without'} reads ahead; goal {EVENTS_GOAL / 1e6:.0f} M events/s")
    seconds = medians({name: partial(ours, work, costs, name) for name in EXECUTION_MODELS}, time.thread_time, ROUNDS)
    for name, took in seconds.items():
        events = events_of(work, costs, name)
        print(f"  {name:18}{events / took / 1e6:8.0f} M events/s{took / CALLS * 1e9:8.0f} ns a call")


def against_simpy(*, ahead: bool) -> None:
    """Ten times the calls if a call has few events, so that all models have about as many."""
    print(f"\n{'With' if ahead else 'Without'} reads ahead, on SimPy; goal x{RATIO_GOAL}")
    for name in EXECUTION_MODELS:
        work, costs = decode(CALLS_BESIDE_SIMPY * (1 if parse_execution(name).reads else 10), ahead=ahead)
        runs = {"there": partial(TWINS[name], work, costs), "here": partial(ours, work, costs, name)}
        seconds = medians(runs, time.thread_time, ROUNDS_BESIDE_SIMPY)
        rates = [events_of(work, costs, name) / seconds[who] / 1e6 for who in ("there", "here")]
        print(f"  {name:18}{rates[0]:8.2f} M/s there{rates[1]:8.1f} M/s here  x{rates[1] / rates[0]:6.0f}")


def workload_of_the_sweep() -> Workload:
    trace = router(SWEEP_TOKENS, layers=SWEEP_LAYERS, seed=2)
    expert = LayerGeometry(trace.n_experts[0], dict.fromkeys(("gate", "up", "down"), 640 << 10))
    model = ModelGeometry("router", dict.fromkeys(trace.layers, expert), TOP_K, "", dense_bytes=4 << 30)
    return prepare(trace, model)


def many_machines(workload: Workload) -> None:
    """A sweep's rows with seconds, their intervals and bottlenecks: one replay of a bank serves all machines."""
    setups = [plan_setup(16 * number, contract="atomic") for number in range(1, 17)]
    conditions, machines = Conditions(), [load_machine(name) for name in MACHINES]
    replays_s = seconds_s = 0.0
    for setup in [setups[0], *setups]:  # the first once more, to compile and to cut the trace into pools
        if setup is setups[0]:
            replays_s = seconds_s = 0.0
        begin = time.thread_time()
        replayed = replay(workload, setup, record=True)
        replays_s += time.thread_time() - begin
        for machine in machines:
            with suppress(DoesNotFit):
                timed = time_replay(workload, replayed, machine, conditions)
                seconds(Task(workload, setup, machine, conditions), timed)
        seconds_s += time.thread_time() - begin
    print(
        f"\n{len(setups)} banks x {len(machines)} machines, {SWEEP_TOKENS:,} tokens x {SWEEP_LAYERS} layers, one core: "
        f"{seconds_s:.1f} s, of which the replays {replays_s:.1f} s   goal {SWEEP_GOAL_S} s"
    )


def all_systems(workload: Workload) -> None:
    """`sim compare`: every system that can run there, sized by its own rule, with its interval."""
    assert workload.geometry is not None
    systems = [kind() for kind in SYSTEMS.values()]
    for name in COMPARED:
        case = Case(workload.geometry, load_machine(name), kv_bytes=1 << 30)
        compare(prepare(cut(workload.trace, steps=(None, 64)), workload.geometry), case, systems)  # to compile
        begin = time.thread_time()
        ran = sum(row.tok_s is not None for row in compare(workload, case, systems))
        taken_s = time.thread_time() - begin
        print(f"{ran} of {len(systems)} systems on {name}, one core: {taken_s:.1f} s   goal {COMPARE_GOAL_S} s")


if __name__ == "__main__":
    for reads_ahead in (False, True):
        on_one_core(ahead=reads_ahead)
        against_simpy(ahead=reads_ahead)
    of_the_sweep = workload_of_the_sweep()
    many_machines(of_the_sweep)
    all_systems(of_the_sweep)
