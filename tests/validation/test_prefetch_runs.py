"""The runtime's replay of a trace that is read one call ahead, and how right its own predictions were."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.prefetchers.table import parse_prefetcher
from flashmoe_sim.residency import tally
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.workload import Setup, prepare
from flashmoe_sim.trace.load import load_trace

RUNS = Path(__file__).parents[2] / "data" / "runs"
GIB = 1 << 30


def found(pattern: str, text: str) -> list[str]:
    match = re.search(pattern, text)
    assert match, pattern
    return list(match.groups())


@pytest.mark.parametrize(("bank", "repairs", "read"), [(16, 911, 14111), (24, 535, 9015), (32, 275, 5657)])
def test_oracle_prefetch(bank: int, repairs: int, read: int) -> None:
    """The mode makes each call resident before it is looked up, and again where aliasing threw some of it out.

    A call with a demand miss here is such a repair there: it counts as one more prefetch of all of the call's experts,
    of which those that missed are read.
    """
    run = RUNS / f"prose-oracle-prefetch-bank{bank}"
    flags, log = json.loads((run / "run.json").read_text()), (run / "log.txt").read_text()
    assert (flags["mode"], flags["bank"]) == ("oracle-prefetch", bank)
    trace = load_trace(RUNS / flags["replay_of"] / "trace.jsonl.gz")
    workload = prepare(trace, load_model(RUNS / "manifest.json"))
    replayed = replay(
        workload, Setup(Bank(slots=bank), contract="runtime", prefetch=parse_prefetcher("oracle-1")), record=True
    )
    counts, stream = replayed.counts.total(), replayed.stream

    assert [str(repairs)] == found(r"oracle-prefetch repaired (\d+) replay records", log)
    assert counts["calls"] - counts["full_hit_calls"] == repairs
    calls, requests, hit, missed, gib, reads = found(
        r"prefetch calls=(\d+) uniq=(\d+) hit=([\d.]+)% miss=(\d+) bytes=([\d.]+) GiB .* pread=(\d+) ", log
    )
    assert counts["prefetch_calls"] + repairs == int(calls)
    again = int(stream.requests[stream.misses > 0].sum())
    assert counts["prefetch_requests"] + again == int(requests) == 8 * int(calls)
    assert counts["prefetch_issued"] + counts["misses"] == int(missed) == read
    assert f"{100 * (1 - read / int(requests)):.1f}" == hit
    assert f"{(counts['prefetch_bytes'] + counts['bytes_read']) / GIB:.2f}" == gib
    assert counts["prefetch_read_ops"] + counts["read_ops"] == int(reads)


@pytest.mark.parametrize("mode", ["predict-prev", "predict-top1"])
def test_overlap(mode: str) -> None:
    """The log compares each prediction with the layer's next call; no layer has one for its first call."""
    run = RUNS / f"prose-{mode}-bank24"
    workload = prepare(load_trace(run / "trace.jsonl.gz"))
    counts = replay(workload, Setup(Bank(slots=24), contract="runtime", prefetch=parse_prefetcher(mode))).counts
    predicted, right = counts.table[:, [tally.PREDICTED, tally.PREDICTED_RIGHT]].sum(axis=0).tolist()
    asked = sum(int(pool.requests[1:].sum()) for pool in workload.layer_pools)
    compared = sum(len(pool.call) - 1 for pool in workload.layer_pools)
    logged = found(
        r"overlap=(\d+)/(\d+) precision=([\d.]+)% coverage=([\d.]+)% layers=(\d+)", (run / "log.txt").read_text()
    )
    assert logged == [
        str(right),
        str(predicted),
        f"{100 * right / predicted:.1f}",
        f"{100 * right / asked:.1f}",
        str(compared),
    ]
