"""What predictors cost and save, and the recall from which one pays."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from flashmoe_sim.ceilings.ahead_value import RECALLS, AheadValue, ahead_values, break_even
from flashmoe_sim.io.errors import OutOfRange, Unsupported
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.table import parse_policy
from flashmoe_sim.prefetchers.table import PREFETCHERS, WITHOUT_FILE, parse_prefetcher
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.workload import Setup, prepare
from tests.residency.builders import of_one_layer, one_layer, totals, trace_of
from tests.residency.compare import workload_of
from tests.residency.test_twins import random_workload

PRICES = (0.0, 0.3, 0.5, 0.9)


def setup_of(slots: int, contract: str = "atomic", scope: str = "layer", policy: str = "lru") -> Setup:
    return Setup(Bank(slots=slots), parse_policy(policy), contract, scope=scope)


def values_of(spec: str, unions: list[list[int]], slots: int) -> AheadValue:
    """One predictor in a model of one layer of 4 experts, 100 bytes each."""
    workload = workload_of(one_layer(unions), {0: 4}, {0: 100})
    (value,) = ahead_values(workload, setup_of(slots), [parse_prefetcher(spec)])
    return value


def test_each_read_ahead_saves_a_miss() -> None:
    """0 1 0 1 in one slot misses four times; each read a step ahead, the first before the run, none. All are late."""
    value = values_of("oracle-w", [[0], [1], [0], [1]], 1)
    assert asdict(value) == {
        "prefetch": "oracle-w",
        "hindsight": True,
        "precision": 1.0,
        "recall": 1.0,
        "read_ahead": 4,
        "useful": 4,
        "late": 4,
        "wasted": 0,
        "misses": 0,
        "saved": 4,
        "tokens": 4,
        "bytes_read": 400,
        **dict.fromkeys(("tok_s", "tok_s_lo", "tok_s_hi", "late_layers")),
    }
    assert value.worth == 1
    assert value.pays(1)
    assert not value.pays(1.01)


def test_a_wrong_read_can_cost_a_miss() -> None:
    """0 0 0 in one slot misses once. Wrong each time, 1, 2 or 3 is read in its place: three misses and three reads."""
    value = values_of("synthetic:recall=0:extra=1", [[0], [0], [0]], 1)
    assert (value.read_ahead, value.useful, value.wasted, value.misses, value.saved) == (3, 0, 3, 3, -2)
    assert value.worth == pytest.approx(-2 / 3)
    assert not value.pays(0)
    assert value.bytes_read == 600


def test_naming_what_is_resident_costs_no_read_and_keeps_it() -> None:
    """0 0 1 2 0 in two slots: LRU gives 0 up for 2. `hot` names 0 after each step, which is a use: 1 goes instead."""
    unions = [[0], [0], [1], [2], [0]]
    assert values_of("none", unions, 2).misses == 4
    value = values_of("hot:width=1", unions, 2)
    assert (value.read_ahead, value.misses, value.saved, value.worth) == (0, 3, 1, None)
    assert value.pays(9)


def test_nothing_read_ahead() -> None:
    value = values_of("none", [[0], [1]], 1)
    assert (value.precision, value.recall, value.read_ahead, value.saved, value.worth) == (None, None, 0, 0, None)


@pytest.mark.parametrize("contract", ["runtime", "protected", "atomic"])
@pytest.mark.parametrize("scope", ["layer", "global"])
def test_values_are_what_replays_say(contract: str, scope: str) -> None:
    workload = random_workload(2)
    slots = min(workload.n_experts)
    setup = setup_of(slots, contract, scope, "fifo")
    predictors = [PREFETCHERS[name]() for name in WITHOUT_FILE]
    seen: list[tuple[int, int]] = []
    values = ahead_values(workload, setup, predictors, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(done, len(predictors)) for done in range(1, len(predictors) + 1)]
    assert [value.prefetch for value in values] == list(WITHOUT_FILE)
    without = totals(replay(workload, setup))["misses"]
    for predictor, value in zip(predictors, values, strict=True):
        result = replay(workload, Setup(setup.bank, setup.policy, contract, predictor, setup.scope))
        counted, row = totals(result), result.counts.total()
        assert (value.misses, value.saved) == (counted["misses"], without - counted["misses"])
        assert (value.read_ahead, value.useful, value.late, value.wasted) == tuple(
            counted[f"prefetch_{name}"] for name in ("issued", "useful", "late", "wasted")
        )
        assert (value.precision, value.recall) == (row["prefetch_precision"], row["prefetch_recall"])
        assert value.bytes_read == row["bytes_read"] + row["prefetch_bytes"]


def test_what_was_predicted_is_not_kept() -> None:
    workload = prepare(random_workload(2).trace)
    ahead_values(workload, setup_of(2), [parse_prefetcher("hot"), parse_prefetcher("oracle-w")])
    break_even(workload, setup_of(2), price=0.5)
    assert {prefetcher.name for prefetcher, _ in workload._ahead} <= {"none"}


@pytest.mark.parametrize("price", PRICES)
@pytest.mark.parametrize("seed", range(6))
def test_the_least_recall_that_pays(seed: int, price: float) -> None:
    """It pays off, one per cent less does not; if there is none, no recall of the grid pays off."""
    workload = random_workload(seed)
    setup = setup_of(max(min(workload.n_experts) // 2, 1))
    steps: list[tuple[int, int]] = []
    found = break_even(workload, setup, price=price, progress=lambda done, total: steps.append((done, total)))
    assert steps == [(done, len(found.extras)) for done in range(1, len(found.extras) + 1)]
    assert found.extras[0] == 0
    assert list(found.extras) == sorted(set(found.extras))
    for extra, row, needed in zip(found.extras, found.grid, found.needed, strict=True):
        specs = [parse_prefetcher(f"synthetic:recall={recall}:extra={extra}") for recall in RECALLS]
        assert list(row) == ahead_values(workload, setup, specs)
        if needed is None:
            assert not any(value.pays(price) for value in row)
            continue
        percent = round(100 * needed)
        assert needed == percent / 100
        tried = [percent, percent - 1][:percent]
        chosen = [parse_prefetcher(f"synthetic:recall={one / 100}:extra={extra}") for one in tried]
        pays = [value.pays(price) for value in ahead_values(workload, setup, chosen)]
        assert pays == [True, False][: len(tried)]


def test_extras_are_shares_of_what_a_token_uses() -> None:
    trace = trace_of(one_layer([[0, 1, 2, 3, 4, 5, 6, 7]] * 3), 32).with_(top_k=8)
    assert break_even(prepare(trace), setup_of(8), price=0.5).extras == (0, 2, 4, 8, 16)
    assert break_even(of_one_layer([[0]] * 3, 4), setup_of(1), price=0.5).extras == (0, 1, 2)


def test_refusals() -> None:
    workload = random_workload(2)
    with pytest.raises(OutOfRange, match="price -1: expected 0 or more"):
        break_even(workload, setup_of(2), price=-1)
    with pytest.raises(OutOfRange, match="price nan"):
        break_even(workload, setup_of(2), price=float("nan"))
    with pytest.raises(Unsupported, match="predictor hot is undefined under the contract sequential"):
        ahead_values(workload, setup_of(2, "sequential"), [parse_prefetcher("hot")])
    with pytest.raises(Unsupported, match="policy static never installs"):
        break_even(workload, setup_of(2, policy="static"), price=0.5)
