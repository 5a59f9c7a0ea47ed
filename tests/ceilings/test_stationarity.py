"""Whether the first half of a trace is a profile of the second."""

from __future__ import annotations

import pytest

from flashmoe_sim.ceilings.popularity import Stationarity, stationarity_of
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.table import parse_policy
from flashmoe_sim.residency.workload import Setup, Workload, prepare
from flashmoe_sim.trace.cut import cut
from tests.residency.builders import geometry_of, of_one_layer, run, totals, trace_of
from tests.residency.test_twins import byte_banks, every_bank, random_workload


def halves(
    workload: Workload, bank: int | Bank, scope: str = "layer", contract: str = "atomic", policy: str = "lru"
) -> Stationarity | None:
    bank = Bank(slots=bank) if isinstance(bank, int) else bank
    return stationarity_of(workload, Setup(bank, parse_policy(policy), contract, scope=scope))


def test_other_experts_in_each_half() -> None:
    # One slot. The first half requests 0, the second requests 1 twice: LRU misses it once, warm or not.
    assert halves(of_one_layer([[0], [0], [1], [1]], 4), 1) == Stationarity(
        policy="static",
        contract="atomic",
        steps=4,
        first_steps=2,
        requests=2,
        profile=0.0,
        hindsight=1.0,
        lru_empty=0.5,
        lru_warm=0.5,
        overlap=0.0,
    )


def test_warm_and_empty() -> None:
    # Two slots. 0, 1 | 1, 2, 1: the halves are of 2 and 3 steps. The first pins 0 and 1, the second 1 and 2.
    # LRU from empty: 1 misses, 2 misses, 1 hits. Warm, with 0 and 1: 1 hits, 2 takes the place of 0, 1 hits.
    found = halves(of_one_layer([[0], [1], [1], [2], [1]], 4), 2)
    assert (found.steps, found.first_steps, found.requests) == (5, 2, 3)
    assert (found.profile, found.hindsight) == (2 / 3, 1.0)
    assert (found.lru_empty, found.lru_warm) == (1 / 3, 2 / 3)
    assert found.overlap == 0.5


def test_one_bank_for_all_layers() -> None:
    # Two slots for two layers. The first half pins expert 0 of both, the second 0 and 1 of layer 0: 3 of 4 requests.
    calls = [(0, [0], 1), (1, [0], 1), (0, [0, 1], 1), (1, [2], 1), (0, [0, 1], 1)]
    found = halves(prepare(trace_of(calls[:2] * 2 + calls[2:], 4)), 1, "global")
    assert (found.policy, found.steps, found.requests) == ("static:global", 4, 5)
    assert (found.profile, found.hindsight, found.overlap) == (2 / 5, 4 / 5, 0.5)


def test_a_request_is_a_reference_where_calls_are_sequential() -> None:
    # 0 is chosen by the first half, and requested three times in the second's one call of two tokens.
    trace = trace_of([(0, [0], 1), (0, [0, 1, 0, 2, 0, 3], 3)], 4)
    for contract, profile in (("atomic", 1 / 4), ("sequential", 3 / 6)):
        found = halves(prepare(trace), 1, contract=contract)
        assert (found.profile, found.contract) == (profile, contract)


def test_no_halves() -> None:
    assert halves(of_one_layer([[0, 1]], 4), 1) is None
    missing = prepare(trace_of([(0, [0], 1), (1, [0], 1), (0, [0], 1), (0, [1], 1)], 2))
    assert halves(missing, 1) is None


def test_the_lru_that_is_diagnosed_is_the_one_compared_with() -> None:
    # Three slots, [0,1 | 0,2]: by first references 3 displaces 0 and then 0 displaces 1, so both miss; by last
    # references 3 displaces 1, and 0 hits.
    trace = trace_of([(0, [0, 1, 0, 2], 2), (0, [3], 1), (0, [0, 0], 2), (0, [1], 1)], 4)
    first, last = (halves(prepare(trace), 3, policy=f"lru:stamp={stamp}") for stamp in ("first", "last"))
    assert (first.lru_warm, last.lru_warm) == (0.0, 0.5)
    assert first == halves(prepare(trace), 3, policy="fifo")


@pytest.mark.parametrize("scope", ["layer", "global"])
@pytest.mark.parametrize("contract", ["atomic", "sequential"])
def test_against_replays_of_the_halves(scope: str, contract: str) -> None:
    checked = 0
    for seed in range(12):
        workload = random_workload(seed)
        trace = workload.trace
        for bank in [*every_bank(workload), *byte_banks(workload, "layer")]:
            found = halves(workload, bank, scope, contract)
            if found is None:
                continue
            middle = int(sorted(set(trace.steps.tolist()))[found.first_steps])
            second = Workload(cut(trace, steps=(middle, None)), workload.geometry)
            pinned = totals(run(second, bank, found.policy, contract, scope=scope))
            assert (found.requests, found.hindsight) == (pinned["requests"], pinned["hits"] / pinned["requests"])
            assert found.lru_empty == run(second, bank, "lru", contract, scope=scope).counts.total()["hit_rate"]
            whole = totals(run(workload, bank, "lru", contract, scope=scope))
            first = Workload(cut(trace, steps=(None, middle)), workload.geometry)
            early = totals(run(first, bank, "lru", contract, scope=scope))
            assert found.lru_warm == (whole["hits"] - early["hits"]) / found.requests
            assert 0 <= found.overlap <= 1
            if (found.policy, contract) == ("static", "atomic"):  # else the choice is by bytes, or not by reference
                assert found.profile <= found.hindsight
            checked += 1
    assert checked > 100


def test_byte_banks_of_unequal_experts_in_one_bank() -> None:
    calls = [(0, [0], 1), (1, [0], 1)] * 2 + [(0, [0], 1), (1, [1], 1)] * 2
    workload = prepare(trace_of(calls, 2), geometry_of({0: 10, 1: 30}, 2))
    found = halves(workload, Bank(budget_bytes=40), "global")
    assert (found.profile, found.hindsight) == (0.5, 1.0)
