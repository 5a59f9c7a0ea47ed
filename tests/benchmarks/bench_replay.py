"""How fast replays are, as ratios to libCacheSim and to plain Python, measured in one run.

Run it with `python -m tests.benchmarks.bench_replay` after `pip install -e '.[bench]'`. Every figure is the median of
interleaved rounds in thread CPU time, so that other work on the machine falls on all sides alike; the whole-sweep rows
are wall time, since a sweep uses all cores.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.policies.bank import Bank, parse_banks
from flashmoe_sim.policies.base import NEVER
from flashmoe_sim.policies.table import parse_policy
from flashmoe_sim.residency.curve import pool_curve
from flashmoe_sim.residency.many import count
from flashmoe_sim.residency.workload import Setup, Workload, prepare
from flashmoe_sim.sweep.collect import sweep
from flashmoe_sim.trace.load import load_trace
from flashmoe_sim.trace.routing import RoutingTrace
from flashmoe_sim.trace.write_jsonl import write_jsonl

ROUNDS = 7
EXPERTS, TOP_K, SLOTS = 256, 8, 64
SAME = {
    "arc": "ARC",
    "s3fifo": "S3FIFO",
    "sieve": "Sieve",
    "slru": "SLRU",
    "lirs": "LIRS",
    "2q": "TwoQ",
    "clock": "Clock",
}


def router(tokens: int, *, layers: int = 1, seed: int = 1) -> RoutingTrace:
    """A synthetic router: skewed, drifting popularity with short-term stickiness; top-8 of 256 experts.

    Its LRU hit rates in banks of 16, 32, 64 and 128 are about 46, 61, 75 and 90%: near the bundled trace python-256.
    """
    rng = np.random.default_rng(seed)
    chosen = np.empty((tokens, layers, TOP_K), np.int16)
    popularity = rng.normal(scale=1.6, size=(layers, EXPERTS))
    sticky = np.zeros((layers, EXPERTS))
    for token in range(tokens):
        if token % 200 == 0:
            popularity = 0.9 * popularity + rng.normal(scale=0.64, size=popularity.shape)
        score = popularity + sticky + rng.gumbel(size=popularity.shape)
        chosen[token] = np.argpartition(-score, TOP_K, axis=1)[:, :TOP_K]
        sticky *= 0.7
        np.put_along_axis(sticky, chosen[token].astype(np.int64), 1.2, axis=1)
    return calls(chosen.reshape(-1, TOP_K), layers=layers, name="router")


def zipf(references: int) -> RoutingTrace:
    """Independent draws with probability 1/rank, in calls of eight."""
    weight = 1 / np.arange(1, EXPERTS + 1)
    drawn = np.random.default_rng(1).choice(EXPERTS, references, p=weight / weight.sum()).astype(np.int16)
    return calls(drawn.reshape(-1, TOP_K), layers=1, name="zipf")


def calls(experts: NDArray[np.int16], *, layers: int, name: str) -> RoutingTrace:
    n = len(experts)
    return RoutingTrace(
        layer=(np.arange(n) % layers).astype(np.int16),
        n_tokens=np.ones(n, np.int32),
        offset=np.arange(n + 1, dtype=np.int64) * TOP_K,
        expert=experts.ravel(),
        n_experts=dict.fromkeys(range(layers), EXPERTS),
        n_experts_known=True,
        top_k=TOP_K,
        name=name,
    )


def medians(runs: Mapping[str, Callable[[], object]], clock: Callable[[], float], rounds: int) -> dict[str, float]:
    """Seconds of each run, the median of interleaved rounds after one that is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds + 1):
        for name, run in runs.items():
            begin = clock()
            run()
            if number:
                seconds[name].append(clock() - begin)
    return {name: statistics.median(values) for name, values in seconds.items()}


def oracle_reader(trace: RoutingTrace, folder: Path) -> Any:
    """The trace as libCacheSim reads it fastest, with the place for next uses that its Belady needs."""
    import libcachesim

    record = np.zeros(trace.refs, [("time", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next", "<i8")])
    record["time"], record["id"], record["size"] = np.arange(trace.refs), trace.expert, 1
    upcoming = prepare(trace).layer_pools[0].next_reference
    record["next"] = np.where(upcoming == NEVER, -1, upcoming)
    path = folder / f"{trace.name}.bin"
    record.tofile(path)
    return libcachesim.TraceReader(
        str(path),
        libcachesim.TraceType.ORACLE_GENERAL_TRACE,
        libcachesim.ReaderInitParam(ignore_obj_size=True),
    )


def against_the_same_policy(trace: RoutingTrace, folder: Path) -> None:
    """One size of policies that both have, each against libCacheSim's own."""
    import libcachesim

    reader = oracle_reader(trace, folder)
    workload = prepare(trace)
    assert workload.layer_pools[0].next_reference is not None
    print(f"\n{trace.name}: one size, sequential, {SLOTS} slots; each against libCacheSim's same policy, goal x2")
    for name, theirs in SAME.items():
        setup = Setup(Bank(slots=SLOTS), parse_policy(name), "sequential")

        def peer(theirs: str = theirs) -> None:
            reader.reset()
            getattr(libcachesim, theirs)(SLOTS, hashpower=10).process_trace(reader)

        def ours(setup: Setup = setup) -> None:
            count(workload, setup)

        seconds = medians({"peer": peer, "ours": ours}, time.thread_time, ROUNDS)
        rates = [trace.refs / seconds[who] / 1e6 for who in ("peer", "ours")]
        print(f"  {name:12}{rates[0]:8.1f} M/s there{rates[1]:8.1f} M/s here  x{rates[1] / rates[0]:5.2f}")


def against_libcachesim(trace: RoutingTrace, folder: Path) -> None:
    """One size and all sizes, against one libCacheSim LRU of the same size on the same references.

    Three policies reached 5, 5 and 4 times under `sequential` with loops of their own, without slots. In the loop that
    all policies share, a reference costs a branch that the processor cannot predict, and the policy's list. Without
    records, sizes and checks that loop is at most a tenth faster, so the goals are lower.
    """
    import libcachesim

    reader = oracle_reader(trace, folder)

    def peer() -> float:
        reader.reset()
        return float(libcachesim.LRU(SLOTS, hashpower=10).process_trace(reader)[0])

    workload = prepare(trace)
    pool = workload.layer_pools[0]
    assert pool.next_call is not None
    assert pool.next_reference is not None

    def one(policy: str, contract: str) -> Callable[[], object]:
        setup = Setup(Bank(slots=SLOTS), parse_policy(policy), contract)
        return lambda: count(workload, setup)

    goals = {
        "LRU, one size, protected": (one("lru", "protected"), 5),
        "LRU, one size, runtime": (one("lru", "runtime"), None),
        "LRU, one size, sequential": (one("lru", "sequential"), 3.5),
        "FIFO, one size, sequential": (one("fifo", "sequential"), 3.5),
        "min, one size, sequential": (one("min", "sequential"), 2.5),
        "min:forced, one size, sequential": (one("min:forced", "sequential"), 2.5),
        "LRU, every size, whole calls": (lambda: pool_curve(pool, parse_policy("lru")), 3),
        "min, every size, whole calls": (lambda: pool_curve(pool, parse_policy("min")), 1),
    }
    seconds = medians({"peer": peer} | {name: run for name, (run, _) in goals.items()}, time.thread_time, ROUNDS)
    ours = count(workload, Setup(Bank(slots=SLOTS), parse_policy("lru"), "sequential")).total()
    assert round(1 - ours["hit_rate"], 9) == round(peer(), 9), "the two LRUs differ"
    print(f"\n{trace.name}: {trace.refs:,} references to {EXPERTS} experts, {SLOTS} slots; against libCacheSim's LRU")
    print(f"  {'libCacheSim LRU, one size':36}{trace.refs / seconds['peer'] / 1e6:8.1f} M/s")
    for name, (_, goal) in goals.items():
        ratio = seconds["peer"] / seconds[name]
        rate = trace.refs / seconds[name] / 1e6
        print(f"  {name:36}{rate:8.1f} M/s  x{ratio:5.2f}{f'   goal x{goal}' if goal else ''}")


def plain_protected_lru(by_layer: Iterable[Sequence[Sequence[int]]], slots: int) -> int:
    """Misses of a per-layer LRU that protects the current call, in plain Python."""
    misses = 0
    for layer_calls in by_layer:
        resident: OrderedDict[int, None] = OrderedDict()
        for call in layer_calls:
            asked = dict.fromkeys(call)
            missing = [expert for expert in asked if expert not in resident]
            misses += len(missing)
            surplus = len(resident) + len(missing) - slots
            victims = []
            for expert in resident if surplus > 0 else ():
                if expert not in asked:
                    victims.append(expert)
                    if len(victims) == surplus:
                        break
            for expert in victims:
                del resident[expert]
            for expert in asked:
                resident[expert] = None
                resident.move_to_end(expert)
    return misses


def read_plainly(path: Path) -> list[list[list[int]]]:
    by_layer: dict[int, list[list[int]]] = defaultdict(list)
    with path.open() as lines:
        for line in lines:
            record = json.loads(line)
            by_layer[record["layer"]].append(record["experts"])
    return list(by_layer.values())


def whole_sweep(folder: Path) -> None:
    """`sim sweep --bank 16..256 --policy lru,static,min` on 12,000 tokens of 60 layers, against plain Python LRU."""
    trace = router(12_000, layers=60, seed=2)
    path = folder / "sweep.jsonl"
    write_jsonl(trace, path)
    banks = parse_banks("16..256")

    def setups(contract: str) -> list[Setup]:
        chosen = (("lru", contract), ("static", contract), ("min", "atomic"))
        return [Setup(bank, parse_policy(name), under) for bank in banks for name, under in chosen]

    def ours(contract: str) -> Callable[[], object]:
        return lambda: sweep([Workload(trace, None)], setups(contract))

    def ours_from_file() -> object:
        return sweep([prepare(load_trace(path))], setups("protected"))

    begin = time.perf_counter()
    parsed = read_plainly(path)
    reading = time.perf_counter() - begin
    runs = {"protected": ours("protected"), "runtime": ours("runtime"), "with reading": ours_from_file}
    misses, plain, rounds = [], 0.0, []
    for bank in banks:  # after each in plain Python, so that other work on the machine falls on both
        begin = time.perf_counter()
        misses.append(plain_protected_lru(parsed, bank.slots or 0))
        plain += time.perf_counter() - begin
        rounds.append(medians(runs, time.perf_counter, 3))
    seconds = {name: statistics.median(one[name] for one in rounds) for name in runs}
    rows = [row for row in sweep([Workload(trace, None)], setups("protected")) if row["policy"] == "lru"]
    assert [row["misses"] for row in rows] == misses, "the two LRUs differ"
    print(f"\nsweep of {', '.join(map(str, banks))} slots: lru, static and min; {trace.refs:,} references, 60 layers")
    print(f"  plain Python, LRU alone            {plain:8.2f} s   reading the file {reading:.2f} s")
    for name, base, goal in (
        ("protected", plain, 100),
        ("runtime", plain, None),
        ("with reading", plain + reading, 20),
    ):
        wanted = f"   goal x{goal}" if goal else ""
        print(f"  sim sweep, {name:24}{seconds[name]:8.2f} s   x{base / seconds[name]:.0f}{wanted}")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            for trace in (zipf(3_000_000), router(125_000)):
                against_libcachesim(trace, Path(folder))
            for trace in (zipf(1_000_000), router(125_000)):
                against_the_same_policy(trace, Path(folder))
        except ModuleNotFoundError as error:
            print(f"{error.name} is not installed: pip install -e '.[bench]'")
        whole_sweep(Path(folder))


if __name__ == "__main__":
    main()
