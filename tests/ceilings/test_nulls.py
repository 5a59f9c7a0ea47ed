"""How much of a hit rate is popularity and how much recency."""

from __future__ import annotations

import numpy as np
import pytest

from flashmoe_sim.ceilings.popularity import Nulls, nulls_of
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.table import POLICIES, parse_policy
from flashmoe_sim.residency.workload import Setup, Workload, prepare
from flashmoe_sim.trace.nulls import shuffled_null, uniform_null
from tests.residency.builders import geometry_of, of_one_layer, one_layer, run, trace_of
from tests.residency.test_laws import fitting_banks
from tests.residency.test_twins import PAIRS, random_workload


def nulls(workload: Workload, slots: int, policy: str = "lru", contract: str = "atomic", scope: str = "layer") -> Nulls:
    setup = Setup(Bank(slots=slots), parse_policy(policy), contract, scope=scope)
    hit_rate = run(workload, slots, policy, contract, scope=scope).counts.total()["hit_rate"]
    return nulls_of(workload, setup, hit_rate=hit_rate, seed=3)


@pytest.mark.parametrize(("contract", "policy"), PAIRS)
def test_they_are_replays_of_the_null_traces(contract: str, policy: str) -> None:
    """Also that calls are no larger in them: where the trace fits the slots of a contract, they do."""
    for seed in (0, 3):
        workload = random_workload(seed)
        for slots in fitting_banks(workload, contract):
            found = nulls(workload, slots, policy, contract)
            for rate, null in ((found.shuffled, shuffled_null), (found.uniform, uniform_null)):
                made = Workload(null(workload.trace, seed=3), workload.geometry)
                assert rate == run(made, slots, policy, contract).counts.total()["hit_rate"]
            assert found.popularity_points == 100 * (found.shuffled - found.uniform)
            assert found.recency_points == 100 * (found.hit_rate - found.shuffled)
            if policy in ("static", "demand"):
                assert found.recency_points == 0


def test_the_closed_form() -> None:
    # Layer 0: 2 of 8 slots, 4 requests; layer 1 has but 2 experts: 2 of 2, 2 requests.
    calls = [(0, [0, 1], 1), (1, [0], 1), (0, [2, 3], 1), (1, [1], 1)]
    workload = prepare(trace_of(calls, {0: 8, 1: 2}), geometry_of({0: 10, 1: 30}, {0: 8, 1: 2}))
    assert nulls(workload, 2).closed_form == (4 * 2 / 8 + 2 * 2 / 2) / 6
    assert nulls(workload, 2, scope="global").closed_form is None
    # 60 bytes for each layer: six of 8, and two of 2.
    setup = Setup(Bank(budget_bytes=120), parse_policy("lru"), "atomic")
    assert nulls_of(workload, setup, hit_rate=0, seed=1).closed_form == (4 * 6 / 8 + 2 * 2 / 2) / 6


@pytest.mark.parametrize("policy", [name for name, kind in POLICIES.items() if not kind.hindsight and name != "demand"])
def test_no_policy_beats_the_closed_form_on_the_uniform_null(policy: str) -> None:
    """20,000 requests, four a call: the share's standard deviation is below 0.0036, and four times 16 miss at first."""
    rng = np.random.default_rng(7)
    unions = [sorted(rng.choice(8, size=4, replace=False).tolist()) for _ in range(5_000)]
    workload = of_one_layer(unions, 32)
    for slots in (4, 16, 31):
        found = nulls(workload, slots, policy)
        assert found.closed_form == slots / 32
        if policy == "placed":  # which takes whole layers
            assert found.uniform == 0
            continue
        assert abs(found.uniform - found.closed_form) < 5 * 0.0036 + 32 / 20_000


def test_popularity_alone_and_recency_alone() -> None:
    rng = np.random.default_rng(5)
    weight = np.r_[np.full(4, 0.9 / 4), np.full(60, 0.1 / 60)]
    found = nulls(of_one_layer(rng.choice(64, (4000, 1), p=weight).tolist(), 64), 4)
    assert found.popularity_points > 40
    assert abs(found.recency_points) < 3
    # Every expert 20 times in a row: nothing is more popular, all is recent.
    recent = of_one_layer([[n // 20 % 64] for n in range(4000)], 64)
    found = nulls(recent, 4)
    assert found.recency_points > 80
    assert abs(found.popularity_points) < 3


def test_whether_the_number_of_experts_is_known() -> None:
    trace = trace_of(one_layer([[0, 1], [1, 2]]), 4)
    assert nulls(prepare(trace), 2).experts_known
    assert not nulls(prepare(trace.with_(n_experts_known=False)), 2).experts_known
