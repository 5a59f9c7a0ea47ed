"""The published conformance vector of event-atomic replay: LRU on three layers of four experts, two slots each.

arXiv 2608.07911 (github.com/shijiuzhang/moe-cache-eval, commit f7bacc2e, paper/artifacts/event-atomic-toy-trace-v1,
Apache-2.0): 30 accesses, 12 hits, 18 misses, of which 12 are compulsory, and 12 evictions.
"""

from __future__ import annotations

from flashmoe_sim.ceilings.diagnose import diagnose
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.residency.workload import Setup, prepare
from tests.residency.builders import run, trace_of

REQUESTED = ([0, 1], [0, 2], [0, 1], [0, 3], [0, 1])  # by each layer, step by step
MISSES = [2, 2, 2, *[1] * 12]  # of each event


def test_event_atomic_lru() -> None:
    workload = prepare(trace_of([(layer, experts, 1) for experts in REQUESTED for layer in range(3)], 4))
    for contract in ("atomic", "protected"):  # every call fits its bank
        found = run(workload, Bank(slots=2), "lru", contract, record=True)
        total = found.counts.total()
        assert [total[name] for name in ("requests", "hits", "misses", "evictions")] == [30, 12, 18, 12]
        assert found.stream is not None
        assert found.stream.misses.tolist() == MISSES
        assert found.stream.by_step(found.stream.misses).tolist() == [6, 3, 3, 3, 3]
    assert diagnose(workload, Setup(Bank(slots=2), contract="atomic")).split.compulsory == 12
