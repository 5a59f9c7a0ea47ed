"""Equal misses to libCacheSim, reference by reference, where its rules are ours; needs the extra `bench`.

Sizes are at least 100: below, some of its policies round a part of the cache to nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flashmoe_sim.trace.routing import RoutingTrace
from tests.benchmarks.bench_replay import oracle_reader, router, zipf
from tests.residency.builders import run, totals

libcachesim = pytest.importorskip("libcachesim", reason="pip install -e '.[bench]' for the comparison")

TRACES = [zipf(40_000), router(5_000)]
POLICIES: dict[str, tuple[str, dict[str, Any]]] = {
    "lru": ("LRU", {}),
    "fifo": ("FIFO", {}),
    "lfu:count=restart": ("LFU", {}),
    "clock": ("Clock", {}),
    "sieve": ("Sieve", {}),
    "arc": ("ARC", {}),
    "2q": ("TwoQ", {}),
    "mq:life_time=75": ("MQ", {"lifetime": 75}),
    "lru-k:history=restart": ("LRUK", {}),
    "min:forced": ("Belady", {}),
}


@pytest.mark.parametrize("slots", [100, 128, 200])
@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.name)
@pytest.mark.parametrize("policy", POLICIES)
def test_equal_misses(policy: str, trace: RoutingTrace, slots: int, tmp_path: Path) -> None:
    theirs, parameters = POLICIES[policy]
    cache = getattr(libcachesim, theirs)(slots, hashpower=10, **parameters)
    missed, _ = cache.process_trace(oracle_reader(trace, tmp_path))
    assert totals(run(trace, slots, policy, "sequential"))["misses"] == round(missed * trace.refs)
