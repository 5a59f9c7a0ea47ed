"""Peak memory and CPU time of a trace on disk, at two lengths.

Run it with `python -m tests.benchmarks.bench_long`; `--refs` and `--folder` say how long the trace is and where it is
kept meanwhile. Each figure is of a process of its own. Memory is anonymous (`RssAnon`, Linux): the system can take back
the pages of files.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

import numpy as np

from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.policies.table import parse_policy
from flashmoe_sim.prefetchers.table import parse_prefetcher
from flashmoe_sim.residency.curve import hit_curve
from flashmoe_sim.residency.many import count
from flashmoe_sim.residency.workload import Setup, prepare
from flashmoe_sim.trace.long_traces import Chunk, LongTrace, unpack
from flashmoe_sim.trace.statistics import inspect
from flashmoe_sim.trace.store import read_chunks, write_chunks
from flashmoe_sim.trace.synth_kernels import draw_alike

LAYERS, EXPERTS, TOP_K, SLOTS = 32, 256, 8, 64
TOKENS_PER_CHUNK, DRAWN = 4096, 16
KEPT = 0.3  # of a token's experts, those of the token before
WORK = ("runtime", "protected", "lfu-decay", "temporal", "min", "curve", "inspect")


def synthetic(references: int, *, layers: int = LAYERS) -> LongTrace:
    """Skewed popularity that differs by layer, with short-term stickiness; made again for each reading.

    After DRAWN chunks they come again with other experts in the place of each, since drawing takes longer than replays.
    """
    calls = np.zeros(0, np.int32)
    head = Chunk(
        layer=calls.astype(np.int16),
        n_tokens=calls,
        offset=np.zeros(1, np.int64),
        expert=calls.astype(np.int16),
        n_experts=dict.fromkeys(range(layers), EXPERTS),
        n_experts_known=True,
        top_k=TOP_K,
        format="synth",
        name="long",
        all_layers=tuple(range(layers)),
    )
    return LongTrace(head, lambda: _drawn(head, references // (layers * TOP_K)))


def _drawn(head: Chunk, tokens: int) -> Iterator[Chunk]:
    rng, layers = np.random.default_rng(1), len(head.layers)
    weight = rng.dirichlet(np.full(EXPERTS, 0.3), size=layers) + 1e-6
    drawn = np.empty((DRAWN, min(TOKENS_PER_CHUNK, tokens), layers, TOP_K), np.int16)
    for number, begin in enumerate(range(0, tokens, TOKENS_PER_CHUNK)):
        n, (again, place) = min(TOKENS_PER_CHUNK, tokens - begin), divmod(number, DRAWN)
        for layer in range(layers if not again else 0):
            expert, depth = np.empty((2, n, TOP_K), np.int16)
            no_edge, alike = np.empty(0, np.int64), np.ones(1)
            draw = rng.random((n, 2, TOP_K))
            draw_alike(weight[[layer]], np.zeros(n, np.int64), no_edge, alike, KEPT, draw, expert, depth)
            drawn[place, :n, layer] = expert
        yield replace(
            head,
            layer=np.tile(np.arange(layers, dtype=np.int16), n),
            n_tokens=np.ones(n * layers, np.int32),
            offset=np.arange(n * layers + 1, dtype=np.int64) * TOP_K,
            expert=((drawn[place, :n].ravel() + again) % EXPERTS).astype(np.int16),
        )


def work(what: str, path: Path, references: int) -> None:
    """Do one thing in this process, and print its seconds and peak memory."""
    bank = Bank(slots=SLOTS)
    setups = {
        "runtime": Setup(bank, contract="runtime"),
        "protected": Setup(bank),
        "lfu-decay": Setup(bank, parse_policy("lfu-decay")),
        "min": Setup(bank, parse_policy("min"), "atomic"),
        "temporal": Setup(bank, Lru(), "runtime", parse_prefetcher("temporal")),
    }

    def once(long: LongTrace) -> None:
        if what == "write":
            write_chunks(long, path, force=True)
        elif what == "read":
            unpack(long)
        elif what == "curve":
            hit_curve(prepare(unpack(long)), Lru())
        elif what == "inspect":
            inspect(unpack(long))
        else:
            count(prepare(unpack(long)), setups[what])

    if what != "write":
        once(synthetic(2 * LAYERS * TOP_K))  # compiles
    long = synthetic(references) if what == "write" else read_chunks(path)
    begin = time.process_time()
    with Peak() as peak:
        once(long)
    print(json.dumps({"seconds": time.process_time() - begin, "mib": peak.kib / 1024}))


class Peak:
    """The most anonymous memory of this process, looked at every 5 ms."""

    def __enter__(self) -> Peak:
        self.kib, self._ended = 0, Event()
        self._thread = Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        ended = False
        while not ended:
            ended = self._ended.wait(0.005)
            (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if "RssAnon" in line]
            self.kib = max(self.kib, int(line.split()[1]))


def start(what: str, path: Path, references: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", __spec__.name, "--work", what, "--folder", str(path), "--refs", str(references)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> dict[str, float]:
    printed, _ = process.communicate()
    if process.returncode:
        raise SystemExit(process.returncode)
    return dict(json.loads(printed))


def measure(references: int, folder: Path) -> None:
    """Print a row for each thing done with a short trace and a long one."""
    lengths = (references // 10, references)
    print(f"{LAYERS} layers of {EXPERTS} experts, top-{TOP_K}, bank {SLOTS}; CPU seconds and peak MiB of a process")
    print(f"{'':12}" + "".join(f"{length:>14,} refs{'MiB':>9}" for length in lengths))
    for what in ("write", "read", *WORK):
        rows = [ended(start(what, folder / f"{length}.parquet", length)) for length in lengths]
        print(f"{what:12}" + "".join(f"{row['seconds']:>17.1f} s{row['mib']:>9.0f}" for row in rows), flush=True)
    sizes = [(folder / f"{length}.parquet").stat().st_size / 2**20 for length in lengths]
    print(f"{'store':12}" + "".join(f"{'':19}{size:>9.0f}" for size in sizes))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--refs", type=lambda text: int(float(text)), default=200_000_000)
    parser.add_argument("--folder", type=Path, help="where the traces are kept meanwhile")
    parser.add_argument("--work", choices=["write", "read", *WORK], help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work(given.work, given.folder, given.refs)
        return
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        measure(given.refs, Path(folder))


if __name__ == "__main__":
    main()
