"""A trace of eight times the length takes no more memory on disk, written, unpacked, replayed or counted."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.policies.table import parse_policy
from flashmoe_sim.prefetchers.table import parse_prefetcher
from flashmoe_sim.residency.curve import hit_curve
from flashmoe_sim.residency.many import count
from flashmoe_sim.residency.workload import Setup, prepare
from flashmoe_sim.sweep.collect import sweep
from flashmoe_sim.sweep.workers import run_on
from flashmoe_sim.trace import routing, runtime_jsonl, store
from flashmoe_sim.trace.load import load_on_disk, load_trace, open_long
from flashmoe_sim.trace.statistics import inspect
from tests.benchmarks import bench_long
from tests.benchmarks.bench_long import synthetic

LAYERS, SHORT, LONGER = 4, 65_536, 8
POLICIES = ("lru", "min", "lookahead-4", "static", "s3fifo")
SETUPS = [
    Setup(Bank(slots=64), contract="runtime"),
    *(Setup(Bank(slots=64), parse_policy(name), "atomic") for name in POLICIES),
    *(Setup(Bank(slots=64), parse_policy(name), "atomic", scope="global") for name in POLICIES),
    *(
        Setup(Bank(slots=64), Lru(), "atomic", parse_prefetcher(name))
        for name in ("temporal", "hot", "markov", "next-layer", "eam:stored=8")
    ),
]


def peak_bytes(work: Callable[[], object]) -> int:
    """The most memory that numpy, Python and Arrow had at once, after a first time that compiles.

    In one thread: how much of two passes is there at the same moment differs from run to run.
    """
    work()
    pool, before = pa.proxy_memory_pool(pa.default_memory_pool()), pa.default_memory_pool()
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] + int(pool.max_memory() or 0)
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(before)


def lines(references: int) -> Iterator[str]:
    for chunk in synthetic(references, layers=LAYERS).read():
        for layer, experts in zip(
            chunk.layer.tolist(), chunk.expert.reshape(-1, bench_long.TOP_K).tolist(), strict=True
        ):
            yield f'{{"layer":{layer},"n_expert_used":{bench_long.TOP_K},"n_tokens":1,"experts":{experts}}}\n'


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_long, "TOKENS_PER_CHUNK", 512)
    monkeypatch.setattr(bench_long, "DRAWN", 1)
    monkeypatch.setattr(routing, "BLOCK", 2048)
    monkeypatch.setattr(store, "CALLS_PER_ROW_GROUP", 2048)
    monkeypatch.setattr(runtime_jsonl, "CALLS_PER_CHUNK", 512)
    monkeypatch.setattr(runtime_jsonl, "CHUNK_BYTES", 1 << 14)


@pytest.mark.usefixtures("small_chunks")
def test_memory_does_not_grow_with_length(tmp_path: Path) -> None:
    found: dict[str, list[int]] = {}
    for references in (SHORT, LONGER * SHORT):
        stored, text = tmp_path / f"{references}.parquet", tmp_path / f"{references}.jsonl"
        text.write_text("".join(lines(references)))

        def write(stored: Path = stored, references: int = references) -> None:
            store.write_chunks(synthetic(references, layers=LAYERS), stored, force=True)

        def convert(text: Path = text) -> None:
            with open_long(text) as long:
                store.write_chunks(long, tmp_path / "converted.parquet", force=True)

        def replay(stored: Path = stored) -> None:
            workload = prepare(load_on_disk(stored))
            for setup in SETUPS:
                count(workload, setup)

        def curve(stored: Path = stored) -> None:
            for policy in (Lru(), parse_policy("min")):
                hit_curve(prepare(load_on_disk(stored)), policy)

        def swept(stored: Path = stored) -> None:
            sweep([prepare(load_on_disk(stored))], SETUPS[:2], workers=run_on(threads=1, cluster=None))

        def statistics(stored: Path = stored) -> None:
            inspect(load_on_disk(stored)).table()

        def whole(stored: Path = stored) -> None:
            load_trace(stored)

        for work in (write, convert, replay, curve, swept, statistics, whole):
            of_steps = 20 * references // (LAYERS * bench_long.TOP_K) if work is statistics else 0  # it numbers them
            least = min(peak_bytes(work) for _ in range(3))  # garbage is collected at any moment
            found.setdefault(work.__name__, []).append(least - of_steps)
    growth = {name: longer / short for name, (short, longer) in found.items()}
    assert growth.pop("whole") > LONGER / 2
    assert all(times < 1.1 for times in growth.values()), (growth, found)
