"""What a sweep costs beside its replays: a task, a row of the ledger, and 1,000 configurations on the bundled traces.

Run it with `python -m tests.benchmarks.bench_sweep`. It also prints what flashmoe_sim/sweep/passes.py goes by: the
cost of a reference in each kind of pass, as CPU seconds of one thread.
"""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from pathlib import Path

from flashmoe_sim.api import load_trace
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.table import parse_policy
from flashmoe_sim.residency.many import CountPass
from flashmoe_sim.residency.workload import Setup, Workload, prepare
from flashmoe_sim.sweep.collect import plan_tasks, sweep
from flashmoe_sim.sweep.ledger import Ledger
from flashmoe_sim.sweep.passes import plan_passes, run_pass
from flashmoe_sim.sweep.plan import plan_setups
from flashmoe_sim.trace.bundled import catalog
from flashmoe_sim.trace.cut import cut

TASKS, ROWS = 1_000, 10_000


def overhead(workload: Workload) -> tuple[float, float]:
    """CPU milliseconds of a task on a trace of a few calls, new and known: planning, ids, passes and rows."""
    short = prepare(cut(workload.trace, steps=(0, 4)), workload.geometry)
    policies = [parse_policy(f"random:seed={seed}") for seed in range(1, 9)]
    setups = [Setup(Bank(slots=slots), policy, "atomic") for policy in policies for slots in range(1, TASKS // 8 + 1)]
    with tempfile.TemporaryDirectory() as folder:
        sweep([short], setups[::125])
        spent = []
        for _ in range(2):
            begin = time.process_time()
            with Ledger(Path(folder)) as ledger:
                sweep([short], setups, ledger=ledger)
            spent.append((time.process_time() - begin) / len(setups) * 1e3)
    return spent[0], spent[1]


def appended(workload: Workload) -> tuple[float, float, float]:
    """Rows a second that a ledger takes one by one, by the clock and by CPU time; and those read, by CPU time."""
    (row,) = sweep([workload], plan_setups("64"))
    rows = [row | {"id": f"{number:016x}"} for number in range(ROWS)]
    with tempfile.TemporaryDirectory() as folder:
        begin, cpu = time.perf_counter(), time.process_time()
        with Ledger(Path(folder)) as ledger:
            ledger.begin()
            for one in rows:
                ledger.append([one])
        seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
        begin = time.process_time()
        Ledger(Path(folder)).close()
        read = time.process_time() - begin
    return ROWS / seconds, ROWS / cpu, ROWS / read


def configurations(workloads: list[Workload], contract: str) -> tuple[int, float, float]:
    """Rows of TASKS configurations on the first workloads, seconds and CPU seconds.

    Under protected, banks that are too small are left out.
    """
    policies = "lru,fifo,lfu,random,min"
    setups = plan_setups("16..64", bank_step="2", policy=policies, contract=contract)
    workloads = workloads[: TASKS // len(setups)]
    assert len(setups) * len(workloads) == TASKS
    with tempfile.TemporaryDirectory() as folder, Ledger(Path(folder)) as ledger:
        begin, cpu = time.perf_counter(), time.process_time()
        rows = sweep(workloads, setups, ledger=ledger, left_out=[])
        seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    return len(rows), seconds, cpu


def costs(workload: Workload) -> None:
    """Twice, since the first run compiles."""
    setups = plan_setups("16..128", policy="lru,fifo,lfu,random,min", contract="protected")
    machines = [load_machine(name) for name in ("m3-max-48", "rtx-4090")]
    tasks = [*plan_tasks([workload], setups), *plan_tasks([workload], setups[:5], machines=machines)]
    for _ in range(2):
        spent, units = defaultdict[str, float](float), defaultdict[str, float](float)
        for one in plan_passes(tasks, refused={}):
            begin = time.thread_time()
            run_pass(one, workload)
            kind, share = "timed", 1.0
            if isinstance(one.work, CountPass):
                kind, share = one.work.kind, len(one.work.part) / len(workload.trace.layers)
            sizes = (
                1 if kind == "stack" else len(one.work.setups if isinstance(one.work, CountPass) else one.work.replays)
            )
            spent[kind] += time.thread_time() - begin
            units[kind] += workload.trace.refs * share * sizes
    for kind, seconds in spent.items():
        print(f"{kind}: {seconds / units[kind] * 1e9:.0f} ns of a reference" + " and size" * (kind != "stack"))


def main() -> None:
    workloads = [load_trace(name) for name in catalog()]
    new, known = overhead(workloads[0])
    print(f"a task of 4 steps: {new:.2f} ms of CPU time; known from the ledger: {known:.2f} ms")
    clock, cpu, read = appended(workloads[0])
    print(f"ledger, one by one: {clock:,.0f} rows/s, {cpu:,.0f} a second of CPU time; read: {read:,.0f}")
    for contract in ("atomic", "protected", "atomic", "protected"):
        rows, seconds, cpu = configurations(workloads, contract)
        print(f"{TASKS} configurations, {contract}: ", end="")
        print(f"{rows} rows in {seconds:.1f} s, {cpu:.1f} s of CPU time")
    costs(load_trace("gpt-oss-120b"))


if __name__ == "__main__":
    main()
