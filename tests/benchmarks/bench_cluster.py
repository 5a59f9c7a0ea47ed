"""What a cluster costs beside its replays: 100, 1,000 and 10,000 tasks on threads and on local:1 and local:2.

Run it with `python -m tests.benchmarks.bench_cluster`. The trace has four steps, so what is measured is planning, ids,
passes, what is sent, and rows. Each number is the median of three runs, taken in turns.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, nullcontext
from statistics import median

from flashmoe_sim.api import load_trace
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.table import parse_policy
from flashmoe_sim.residency.workload import Setup, Workload, prepare
from flashmoe_sim.sweep.collect import plan_tasks, sweep
from flashmoe_sim.sweep.passes import plan_passes
from flashmoe_sim.sweep.workers import Workers, run_on
from flashmoe_sim.trace.bundled import catalog
from flashmoe_sim.trace.cut import cut

TASKS = (100, 1_000, 10_000)
RUNS = 3


def setups_of(tasks: int) -> list[Setup]:
    policies = [parse_policy(f"random:seed={seed}") for seed in range(1, tasks // 50 + 1)]
    return [Setup(Bank(slots=slots), policy, "atomic") for policy in policies for slots in range(8, 58)]


def measured(workload: Workload, setups: list[Setup], workers: Workers) -> float:
    begin = time.perf_counter()
    sweep([workload], setups, workers=lambda: nullcontext(workers))
    return time.perf_counter() - begin


def main() -> None:
    whole = load_trace(next(iter(catalog())))
    workload = prepare(cut(whole.trace, steps=(0, 4)), whole.geometry)
    with ExitStack() as stack:
        workers = {}
        for name, address in (("threads", None), ("local:1", "local:1"), ("local:2", "local:2")):
            begin = time.perf_counter()
            workers[name] = stack.enter_context(run_on(cluster=address)())
            print(f"{name}: open after {time.perf_counter() - begin:.1f} s")
            measured(workload, setups_of(100), workers[name])
        print("\n| tasks | passes | " + " | ".join(workers) + " |")
        print("|---" * (len(workers) + 2) + "|")
        for tasks in TASKS:
            setups = setups_of(tasks)
            passes = len(plan_passes(plan_tasks([workload], setups)))
            runs = [{name: measured(workload, setups, one) for name, one in workers.items()} for _ in range(RUNS)]
            took = {name: median(run[name] for run in runs) for name in workers}
            shown = [f"{seconds:.2f} s, {seconds / tasks * 1e3:.2f} ms a task" for seconds in took.values()]
            print(f"| {tasks:,} | {passes:,} | " + " | ".join(shown) + " |", flush=True)


if __name__ == "__main__":
    main()
