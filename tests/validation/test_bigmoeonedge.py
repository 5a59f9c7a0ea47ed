"""Another engine's real cache: the residency it recorded, row by row.

BigMoeOnEdge keeps one LRU in bytes over (layer, expert): 4000 MiB in these runs. A load covers what one call of a layer
needs, what the call touches is no victim, entries are stamped in the order of their last reference, and eviction
follows the call. The cumulative hit rates, prompt included, are those its authors print.
"""

from __future__ import annotations

import numpy as np
import pytest

from flashmoe_sim.policies.bank import parse_bank
from flashmoe_sim.policies.table import parse_policy
from flashmoe_sim.residency.replay import Replayed, replay
from flashmoe_sim.residency.workload import Setup, prepare
from flashmoe_sim.trace.bundled import catalog
from flashmoe_sim.trace.load import load_trace
from flashmoe_sim.trace.routing import RoutingTrace

RUNS = [("qwen3-30b-phone", 44_766, 74.9, 7), ("gemma-4-26b-phone", 28_260, 76.8, 5)]


def run(trace: RoutingTrace, policy: str) -> Replayed:
    setup = Setup(parse_bank("4000MiB"), parse_policy(policy), "atomic", scope="global")
    return replay(prepare(trace), setup, record=True)


@pytest.mark.parametrize(("name", "rows", "hit_percent", "off_by_first"), RUNS)
def test_residency_row_by_row(name: str, rows: int, hit_percent: float, off_by_first: int) -> None:
    trace = load_trace(catalog()[name].path)
    assert trace.refs == rows
    replayed = run(trace, "lru:stamp=last")
    assert replayed.hit is not None
    np.testing.assert_array_equal(replayed.hit, trace.resident)
    assert round(replayed.counts.total()["hit_rate"] * 100, 1) == hit_percent
    by_first = run(trace, "lru")
    assert by_first.hit is not None
    assert int((by_first.hit != trace.resident).sum()) == off_by_first
