"""The timings of the performance report, and the file they are kept in."""

from __future__ import annotations

import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from flashmoe_sim.api import load_trace
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.table import parse_policy
from flashmoe_sim.residency.curve import pool_curve
from flashmoe_sim.residency.many import count, plan_jobs
from flashmoe_sim.residency.workload import Setup, Workload
from flashmoe_sim.sweep.workers import Workers, run_on
from flashmoe_sim.trace.bundled import catalog
from flashmoe_sim.trace.routing import RoutingTrace
from tests.benchmarks import bench_cluster, bench_startup, bench_sweep
from tests.benchmarks.bench_replay import medians, oracle_reader, plain_protected_lru, router

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results.json"

DEFAULT = Setup.contract
CONTRACTS = (DEFAULT, *(name for name in ("protected", "runtime", "atomic", "sequential") if name != DEFAULT))
TOKENS = (4_000, 8_000, 16_000, 32_000)
LAYERS = (2, 4, 8, 16)
SIZES = (1, 2, 5, 16, 64)
SLOTS = 64
SWEPT = (16, 32, 64, 128, 256)
POLICIES = ("lru", "fifo", "lfu", "arc", "min:forced")
WORKERS = ("threads", "processes of a cluster")
PEER_TOKENS = 60_000
SWEEP_TOKENS, SWEEP_LAYERS = (6_000, 48_000), 60
ROUNDS, SLOW_ROUNDS = 7, 3
STREAMED_BYTES = 1 << 29  # more than the caches of a large server hold

Row = dict[str, Any]


def measure() -> dict[str, Any]:
    """All timings.

    machine: what ran them, and its load. rows: one for each timing; `of` is what is varied, `contract`, `amount`, and
    `ns`, CPU time for a reference of the trace, the median of interleaved rounds. WORKERS: `wall_s`; tasks: `value`.
    """
    load_before = os.getloadavg()
    rows = [*_growth(), *_policies(), *_peers(), *_workers(), *_tasks()]
    machine = {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "load_before": round(load_before[0], 1),
        "load_after": round(os.getloadavg()[0], 1),
    }
    return {"machine": machine, "rows": rows}


def load() -> dict[str, Any]:
    """The committed timings."""
    return json.loads(RESULTS.read_text())  # type: ignore[no-any-return]


def commands() -> dict[str, Any]:
    """The committed timings of whole commands, beside those of an earlier commit; bench_startup writes them."""
    return json.loads(bench_startup.RESULTS.read_text())  # type: ignore[no-any-return]


def _growth() -> list[Row]:
    """LRU at the sizes of SWEPT by tokens and layers, and at more or fewer sizes."""
    longest = router(TOKENS[-1], layers=LAYERS[0])
    deepest = router(TOKENS[0], layers=LAYERS[-1])
    cases: list[tuple[str, int, Workload, Sequence[int]]] = []
    for tokens in TOKENS:
        cases.append(("tokens", tokens, _cut(longest, tokens * LAYERS[0]), SWEPT))
    for layers in LAYERS:
        cases.append(("layers", layers, _first_layers(deepest, layers), SWEPT))
    for sizes in SIZES:
        spread = [round(16 + (place + 0.5) * 240 / sizes) for place in range(sizes)]
        cases.append(("sizes", sizes, cases[1][2], spread))
    rows = []
    for of, amount, workload, slots in cases:
        runs = {contract: _planned(workload, contract, slots) for contract in CONTRACTS[:2]}
        for contract, seconds in medians(runs, time.thread_time, ROUNDS).items():
            rows.append(_row(of, amount, contract, seconds, workload.trace.refs))
    return rows


def _policies() -> list[Row]:
    """One size of several policies."""
    workload = Workload(router(TOKENS[1]), None)
    runs = {(policy, contract): _one(workload, policy, contract) for policy in POLICIES for contract in CONTRACTS[:2]}
    seconds = medians({" ".join(key): run for key, run in runs.items()}, time.thread_time, ROUNDS)
    return [
        _row("policies", policy, contract, seconds[f"{policy} {contract}"], workload.trace.refs)
        for policy, contract in runs
    ]


def _peers() -> list[Row]:
    """One size of LRU under every contract, and all sizes, against other programs on the same references."""
    import libcachesim

    trace = router(PEER_TOKENS)
    workload = Workload(trace, None)
    pool = workload.layer_pools[0]
    by_layer = [trace.expert.reshape(-1, trace.top_k).tolist()]
    streamed = np.ones(STREAMED_BYTES // 8, np.int64)
    runs: dict[str, Callable[[], object]] = {
        f"one size, {contract}": _one(workload, "lru", contract) for contract in CONTRACTS
    }
    runs["every size, protected"] = lambda: pool_curve(pool, parse_policy("lru"))
    with tempfile.TemporaryDirectory() as folder:
        reader = oracle_reader(trace, Path(folder))

        def peer() -> None:
            reader.reset()
            libcachesim.LRU(SLOTS, hashpower=10).process_trace(reader)

        fast = medians({"libCacheSim": peer} | runs, time.thread_time, ROUNDS)
    slow = medians(
        {"plain Python": lambda: plain_protected_lru(by_layer, SLOTS), "streamed": streamed.sum},
        time.thread_time,
        SLOW_ROUNDS,
    )
    fast["reading the references from memory"] = slow.pop("streamed") / STREAMED_BYTES * pool.key.nbytes
    return [_row("peers", name, "", seconds, trace.refs) for name, seconds in (slow | fast).items()]


def _workers() -> list[Row]:
    """A sweep of `lru`, `static` and `min` on one worker and on two, in turns: threads, and processes of a cluster."""
    rows = []
    with ExitStack() as stack:
        opened: dict[tuple[str, int], Workers] = {}
        for count in (1, 2):
            for kind, to_open in zip(WORKERS, (run_on(threads=count), run_on(cluster=f"local:{count}")), strict=True):
                opened[kind, count] = stack.enter_context(to_open())
        for tokens in SWEEP_TOKENS:
            trace = router(tokens, layers=SWEEP_LAYERS, seed=2)
            for contract in CONTRACTS[:2]:
                setups = [
                    Setup(Bank(slots=slots), parse_policy(policy), "atomic" if policy == "min" else contract)
                    for slots in SWEPT
                    for policy in ("lru", "static", "min")
                ]
                wall_s: dict[tuple[str, int], list[float]] = {key: [] for key in opened}
                for number in range(ROUNDS + 1):
                    for key, workers in opened.items():
                        seconds = bench_cluster.measured(Workload(trace, None), setups, workers)
                        if number:
                            wall_s[key].append(seconds)
                rows += [
                    {"of": kind, "amount": count, "contract": contract, "tokens": tokens, "refs": trace.refs}
                    | {"wall_s": statistics.median(each), "best_wall_s": min(each)}
                    for (kind, count), each in wall_s.items()
                ]
    return rows


def _tasks() -> list[Row]:
    """What a sweep costs beside its replays."""
    workloads = [load_trace(name) for name in catalog()]
    bench_sweep.configurations(workloads, DEFAULT)  # compiles
    new_ms, known_ms = bench_sweep.overhead(workloads[0])
    written, written_cpu, read_cpu = bench_sweep.appended(workloads[0])
    rows, wall_s, _ = bench_sweep.configurations(workloads, DEFAULT)
    found = {
        "task_ms": new_ms,
        "known_task_ms": known_ms,
        "written_rows_per_s": written,
        "written_rows_per_cpu_s": written_cpu,
        "read_rows_per_cpu_s": read_cpu,
        "configurations": rows,
        "configurations_s": wall_s,
    }
    return [{"of": "tasks", "amount": name, "value": value} for name, value in found.items()]


def _planned(workload: Workload, contract: str, slots: Sequence[int]) -> Callable[[], object]:
    setups = [Setup(Bank(slots=one), parse_policy("lru"), contract) for one in slots]
    return lambda: [job() for job in plan_jobs(workload, setups)]


def _one(workload: Workload, policy: str, contract: str) -> Callable[[], object]:
    setup = Setup(Bank(slots=SLOTS), parse_policy(policy), contract)
    return lambda: count(workload, setup)


def _row(of: str, amount: object, contract: str, seconds: float, refs: int) -> Row:
    return {"of": of, "amount": amount, "contract": contract, "ns": round(seconds / refs * 1e9, 3), "refs": refs}


def _cut(trace: RoutingTrace, calls: int) -> Workload:
    end = trace.offset[calls]
    return Workload(
        trace.with_(
            layer=trace.layer[:calls],
            n_tokens=trace.n_tokens[:calls],
            offset=trace.offset[: calls + 1],
            expert=trace.expert[:end],
        ),
        None,
    )


def _first_layers(trace: RoutingTrace, layers: int) -> Workload:
    kept = trace.layer < layers
    return Workload(
        trace.with_(
            layer=trace.layer[kept],
            n_tokens=trace.n_tokens[kept],
            offset=np.arange(kept.sum() + 1, dtype=np.int64) * trace.top_k,
            expert=trace.expert.reshape(-1, trace.top_k)[kept].ravel(),
            n_experts={layer: trace.n_experts[layer] for layer in range(layers)},
        ),
        None,
    )


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
