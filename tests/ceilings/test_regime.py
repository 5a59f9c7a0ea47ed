"""Demand over bank, the token cycle, and the cliff of one bank for all layers."""

from __future__ import annotations

import numpy as np
import pytest

from flashmoe_sim.ceilings.regime import Cliff, Regime, cliff_of, regime_of
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.table import parse_policy
from flashmoe_sim.residency.workload import Setup, Workload, prepare
from tests.residency.builders import Call, geometry_of, random_calls, run, totals, trace_of

# Layer 0 has calls of 2, 2 and, with two tokens, 3 distinct experts; layer 1 of 2 and 2: it misses the third step.
CALLS: list[Call] = [(0, [0, 1], 1), (1, [0, 1], 1), (0, [1, 2], 1), (1, [0, 1], 1), (0, [0, 1, 1, 3], 2)]


def setup(bank: int | Bank, scope: str = "layer", contract: str = "atomic", policy: str = "lru") -> Setup:
    return Setup(Bank(slots=bank) if isinstance(bank, int) else bank, parse_policy(policy), contract, scope=scope)


@pytest.fixture
def workload() -> Workload:
    return prepare(trace_of(CALLS, {0: 8, 1: 4}), geometry_of({0: 10, 1: 30}, {0: 8, 1: 4}))


def test_calls_over_the_slots_of_their_layer(workload: Workload) -> None:
    # Two slots of each: 2/2, 2/2, 3/2 and 2/2, 2/2. One token requests 2 experts of 10 and 2 of 30 bytes.
    assert regime_of(workload, setup(2)) == Regime(
        demand="call",
        demand_over_bank_p50=1.0,
        demand_over_bank_p99=1.5,
        share_over=0.2,
        top_k=2,
        token_cycle_slots=4,
        token_cycle_bytes=80,
        bank_slots=4,
        bank_bytes=80,
    )
    # Eight of layer 0, and the four that there are of layer 1: 2/8, 2/8, 3/8, 2/4, 2/4.
    wide = regime_of(workload, setup(8))
    assert (wide.demand_over_bank_p50, wide.demand_over_bank_p99, wide.share_over) == (3 / 8, 0.5, 0)
    assert (wide.bank_slots, wide.bank_bytes) == (12, 200)


def test_steps_over_one_bank_for_all(workload: Workload) -> None:
    # Two slots of each layer make four: 4/4, 4/4 and 3/4.
    found = regime_of(workload, setup(2, "global"))
    assert (found.demand, found.demand_over_bank_p50, found.demand_over_bank_p99) == ("step", 1.0, 1.0)
    assert (found.share_over, found.bank_slots) == (0, 4)


def test_bytes(workload: Workload) -> None:
    # 120 bytes are 60 for each layer: 20, 20, 30 and 60, 60 of them. Fixed slots: six of 10 bytes, two of 30.
    for contract in ("atomic", "runtime"):
        found = regime_of(workload, setup(Bank(budget_bytes=120), contract=contract))
        assert (found.demand_over_bank_p50, found.demand_over_bank_p99) == (0.5, 1.0)
        assert found.bank_slots == (8 if contract == "runtime" else None)
        assert found.bank_bytes == 120
    # One bank: 80, 80 and 30 of 60 bytes.
    one = regime_of(workload, setup(Bank(budget_bytes=60), "global"))
    assert (one.demand_over_bank_p50, one.share_over, one.bank_slots, one.bank_bytes) == (80 / 60, 2 / 3, None, 60)


def test_top_k_is_what_the_trace_says_then_the_model_then_the_widest_token(workload: Workload) -> None:
    assert regime_of(prepare(workload.trace.with_(top_k=3)), setup(2)).top_k == 3
    geometry = workload.geometry
    model = type(geometry)(name="", layers=geometry.layers, top_k=4, source="")
    assert regime_of(prepare(workload.trace, model), setup(2)).top_k == 4
    widest = regime_of(prepare(workload.trace), setup(2))
    assert (widest.top_k, widest.token_cycle_slots, widest.token_cycle_bytes) == (2, 4, None)
    without_tokens = prepare(workload.trace.with_(n_tokens=np.zeros(5, np.int32)))
    found = regime_of(without_tokens, setup(2))
    assert (found.top_k, found.token_cycle_slots, found.token_cycle_bytes) == (0, None, None)
    assert cliff_of(without_tokens, setup(2, "global")) is None


def test_the_cliff_in_slots_and_in_bytes(workload: Workload) -> None:
    assert cliff_of(workload, setup(1)) is None
    # Between two uses of an expert of either layer lie the two of the other: the third slot is the first to hit.
    in_slots = cliff_of(workload, setup(1, "global"))
    layers = totals(run(workload, 1, "lru"))
    assert in_slots == Cliff(2, 4, "2", lru_hits_from=3, layer_hit_rate=layers["hits"] / layers["requests"])
    assert in_slots.below
    # 40 bytes for one of each layer; 20 + 60 for a token. An expert of 30 bytes and the 20 of layer 0 are 50.
    in_bytes = cliff_of(workload, setup(Bank(budget_bytes=79), "global"))
    assert (in_bytes.bank, in_bytes.cycle, in_bytes.enough, in_bytes.lru_hits_from) == (79, 80, "80B", 50)
    assert in_bytes.below
    assert in_bytes.layer_hit_rate is not None
    # 40 bytes hold an expert of either layer, but the half of them none of layer 1.
    small = cliff_of(workload, setup(Bank(budget_bytes=40), "global"))
    assert small.layer_hit_rate is None
    at = cliff_of(workload, setup(Bank(budget_bytes=80), "global"))
    assert not at.below


def test_fixed_slots_of_a_bank_of_bytes() -> None:
    workload = prepare(trace_of(CALLS, 4), geometry_of({0: 10, 1: 10}, 4))
    found = cliff_of(workload, setup(Bank(budget_bytes=35), "global", "protected"))
    assert (found.bank, found.cycle, found.enough, found.lru_hits_from) == (3, 4, "40B", 3)


@pytest.mark.parametrize("contract", ["runtime", "protected", "atomic", "sequential"])
def test_below_the_cliff_lru_hits_exactly_nothing(contract: str) -> None:
    """Whatever the tokens request, as long as every step calls every layer; above the cliff it can hit."""
    rng = np.random.default_rng(11)
    hits_at = 0
    for layers in (2, 3, 5):
        for width in (1, 2, 4):
            calls = random_calls(rng, n_experts=8, layers=layers, steps=40, width=width)
            workload = prepare(trace_of(calls, 8).with_(top_k=width))
            found = cliff_of(workload, setup(width, "global", contract))
            assert found.cycle == layers * width
            assert found.lru_hits_from == (layers - 1) * width + 1
            for slots in range(1, 8):
                if slots * layers < width and contract in ("runtime", "protected"):
                    continue
                hits = totals(run(workload, slots, "lru", contract, scope="global"))["hits"]
                if slots * layers < found.lru_hits_from:
                    assert hits == 0
                hits_at += hits if found.lru_hits_from <= slots * layers <= found.cycle else 0
    assert hits_at > 0


def test_the_cliff_is_where_it_is_said_to_be() -> None:
    # Two layers of top-2. Three slots hold layer 1's two and the expert that layer 0 used last: 1, requested again.
    calls = [(0, [0, 1], 1), (1, [0, 1], 1), (0, [1, 2], 1)]
    workload = prepare(trace_of(calls, {0: 3, 1: 3}), geometry_of({0: 1, 1: 1}, 3))
    for size, hits in ((2, 0), (3, 1)):
        counted = totals(run(workload, Bank(budget_bytes=size), "lru", "atomic", scope="global"))
        assert counted["hits"] == hits
    found = cliff_of(workload, setup(Bank(budget_bytes=2), "global"))
    assert found.lru_hits_from == 3
