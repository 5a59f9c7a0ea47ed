"""The public names, and the example of the README's Python section."""

from __future__ import annotations

import flashmoe_sim
from flashmoe_sim.sweep.collect import sweep
from flashmoe_sim.trace.bundled import catalog


def test_every_public_name_is_there() -> None:
    assert sorted(flashmoe_sim.__all__) == sorted(flashmoe_sim._WHERE)
    for name in flashmoe_sim.__all__:
        assert getattr(flashmoe_sim, name).__name__ == name


def test_a_replay_from_python() -> None:
    sample = catalog()["python-256"]
    workload = flashmoe_sim.prepare(flashmoe_sim.load_trace(sample.path), flashmoe_sim.load_model(str(sample.model)))
    setup = flashmoe_sim.Setup(flashmoe_sim.parse_bank("64"), flashmoe_sim.parse_policy("lru"), "protected")
    counts = flashmoe_sim.replay(workload, setup).counts.total()
    assert counts["hits"] + counts["misses"] == counts["requests"]
    curve = flashmoe_sim.hit_curve(workload, setup.policy, contract="protected")
    assert curve[64].total() == counts
    assert sweep([workload], [setup])[0]["hits"] == counts["hits"]
