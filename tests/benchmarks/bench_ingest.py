"""How fast, and in how much memory, a runtime trace is read, beside polars and a loop with orjson.

Run with `python -m tests.benchmarks.bench_ingest`. The peers get the schema and return their own columns; we return a
checked RoutingTrace. All readers take turns in every round, so that what else the machine does meets them alike; a
ratio is that of the median wall times, or of the median CPU times of all threads.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np

from flashmoe_sim.trace import runtime_jsonl

LAYERS, TOP_K, EXPERTS, SLOTS = 48, 8, 256, 64
PROMPT_TOKENS, PROMPT_EVERY = 64, 40
OURS = "flashmoe-sim"
PEAK_GOAL = 3.0


class Layout(NamedTuple):
    title: str
    template: str
    goal: float


LAYOUTS = (
    Layout(
        "the runtime's layout",
        '{{"seq":{seq},"layer":{layer},"n_expert_used":8,"n_tokens":{n_tokens},"experts":[{experts}],"slots":[{slots}]}}\n',
        3.0,
    ),
    Layout(
        "keys in another order",
        '{{"slots":[{slots}],"experts":[{experts}],"n_tokens":{n_tokens},"layer":{layer},"n_expert_used":8,"seq":{seq}}}\n',
        1.5,
    ),
)


def lines(template: str, size: int) -> Iterator[str]:
    """Lines of about `size` bytes in total: decode calls of one token, and a prompt call a layer every 40 steps."""
    rng = np.random.default_rng(0)
    expert_words = np.array([str(expert) for expert in range(EXPERTS)], object)
    slot_words = expert_words[:SLOTS]
    seq = written = 0
    while written < size:
        n_tokens = 1 if seq // LAYERS % PROMPT_EVERY else PROMPT_TOKENS
        # An odd stride makes the experts of a token distinct.
        start, stride = rng.integers(0, EXPERTS // 2, (2, LAYERS, n_tokens, 1))
        expert = (start + (2 * stride + 1) * np.arange(TOP_K)) % EXPERTS
        slot = rng.integers(0, SLOTS, (LAYERS, n_tokens * TOP_K))
        for layer in range(LAYERS):
            line = template.format(
                seq=seq,
                layer=layer,
                n_tokens=n_tokens,
                experts=",".join(expert_words[expert[layer].ravel()]),
                slots=",".join(slot_words[slot[layer]]),
            )
            written += len(line)
            seq += 1
            yield line


def with_ours(path: Path) -> int:
    return int(runtime_jsonl.read(path).expert.sum(dtype=np.int64))


def with_polars(path: Path) -> int:
    import polars as pl

    ids = pl.List(pl.Int16)
    schema = {
        "seq": pl.Int64,
        "layer": pl.Int32,
        "n_expert_used": pl.Int32,
        "n_tokens": pl.Int32,
        "experts": ids,
        "slots": ids,
    }
    frame = pl.read_ndjson(path, schema=schema)
    return int(frame["experts"].explode().cast(pl.Int64).sum())


def with_orjson(path: Path) -> int:
    import orjson

    seq, layer, used, tokens = array("q"), array("h"), array("i"), array("i")
    expert, slot = array("h"), array("h")
    with path.open("rb") as stream:
        for line in stream:
            row = orjson.loads(line)
            seq.append(row["seq"])
            layer.append(row["layer"])
            used.append(row["n_expert_used"])
            tokens.append(row["n_tokens"])
            expert.extend(row["experts"])
            slot.extend(row["slots"])
    return int(np.frombuffer(expert, np.int16).sum(dtype=np.int64))


READERS: dict[str, tuple[str, Callable[[Path], int]]] = {
    OURS: ("numba", with_ours),
    "polars read_ndjson": ("polars", with_polars),
    "orjson loop": ("orjson", with_orjson),
}


class Cost(NamedTuple):
    """Seconds on the clock, and seconds of processor time over all threads."""

    wall: float
    cpu: float


def measure(path: Path, readers: dict[str, Callable[[Path], int]], rounds: int) -> dict[str, Cost]:
    """The median cost of each reader; all must find the same sum of expert ids."""
    sums = {name: reader(path) for name, reader in readers.items()}
    assert len(set(sums.values())) == 1, f"the readers disagree: {sums}"
    costs: dict[str, list[Cost]] = {name: [] for name in readers}
    for _ in range(rounds):
        for name, reader in readers.items():
            wall, cpu = time.perf_counter(), time.process_time()
            reader(path)
            costs[name].append(Cost(time.perf_counter() - wall, time.process_time() - cpu))
    return {name: Cost(*map(statistics.median, zip(*each, strict=True))) for name, each in costs.items()}


_PEAK_PROGRAM = """
import json, sys, time
from pathlib import Path
started = time.perf_counter()
from flashmoe_sim.trace.runtime_jsonl import read
from flashmoe_sim.trace.routing import RoutingTrace

def status(name):
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024

read(Path(sys.argv[1]))
ready = time.perf_counter() - started
before = status("VmRSS")
Path("/proc/self/clear_refs").write_text("5")
trace = read(Path(sys.argv[2]))
arrays = [trace.layer, trace.n_tokens, trace.offset, trace.expert, trace.slot]
print(json.dumps({"ready": ready, "before": before, "peak": status("VmHWM"),
                  "arrays": sum(array.nbytes for array in arrays if array is not None)}))
"""


def in_subprocess(small: Path, large: Path, cache: Path | None = None) -> dict[str, float]:
    """Read a small and then a large trace in a fresh process: seconds until ready, and bytes (see `_PEAK_PROGRAM`)."""
    environment = os.environ | ({"FLASHMOE_CACHE": str(cache)} if cache else {})
    done = subprocess.run(
        [sys.executable, "-c", _PEAK_PROGRAM, str(small), str(large)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(done.stdout))


def print_costs(costs: dict[str, Cost], size: int, goal: float) -> None:
    ours = costs[OURS]
    print(f"  {'reader':<20}{'wall MB/s':>11}{'CPU MB/s':>10}{'we: x wall':>12}{'x CPU':>8}   goal")
    for name, cost in costs.items():
        row = f"  {name:<20}{size / cost.wall / 1e6:>11.0f}{size / cost.cpu / 1e6:>10.0f}"
        if name != OURS:
            row += f"{cost.wall / ours.wall:>12.2f}{cost.cpu / ours.cpu:>8.2f}"
        if name.startswith("polars"):
            row += f"   >= {goal} x wall: {'met' if cost.wall >= goal * ours.wall else 'MISSED'}"
        print(row)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--megabytes", type=int, default=100, help="size of each file")
    options.add_argument("--rounds", type=int, default=5, help="how often each reader takes its turn")
    given = options.parse_args()
    readers = {name: reader for name, (package, reader) in READERS.items() if find_spec(package)}
    for name in READERS.keys() - readers.keys():
        print(f"{name}: not installed, left out")
    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder) / "small.jsonl"
        small.write_text("".join(lines(LAYOUTS[0].template, 100_000)))
        for layout in LAYOUTS:
            path = Path(folder) / "trace.jsonl"
            with path.open("w") as stream:
                stream.writelines(lines(layout.template, given.megabytes * 1_000_000))
            size = path.stat().st_size
            print(f"{layout.title}: {size / 1e6:.0f} MB, medians of {given.rounds} interleaved rounds")
            print_costs(measure(path, readers, given.rounds), size, layout.goal)
            if sys.platform != "linux":
                print("  peak memory is measured on Linux only")
                continue
            memory = in_subprocess(small, path)
            extra, arrays = memory["peak"] - memory["before"], memory["arrays"]
            print(
                f"  peak memory {extra / 1e6:.0f} MB over the {memory['before'] / 1e6:.0f} MB of the ready program, "
                f"{extra / arrays:.2f} x the {arrays / 1e6:.0f} MB of flat arrays; "
                f"goal <= {PEAK_GOAL}: {'met' if extra <= PEAK_GOAL * arrays else 'MISSED'}"
            )
        if sys.platform == "linux":
            cold = in_subprocess(small, small, cache=Path(folder) / "cold")["ready"]
            warm = in_subprocess(small, small, cache=Path(folder) / "cold")["ready"]
            print(f"import and first read: {cold:.1f} s with nothing compiled, {warm:.1f} s with kernels cached")


if __name__ == "__main__":
    main()
