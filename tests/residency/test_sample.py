"""Curves from a sample of the layers: exact with all of them, unbiased with some, and rarely outside their interval."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from statistics import mean, stdev
from typing import Any

import numpy as np
import pytest

from flashmoe_sim.io.errors import BadInput, OutOfRange
from flashmoe_sim.policies.table import parse_policy
from flashmoe_sim.residency.curve import round_sizes
from flashmoe_sim.residency.sample import LEAST_HALF, estimate, pick, sampled_curve
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.schema import SAMPLED
from flashmoe_sim.trace.synth import synthesize
from flashmoe_sim.trace.synth_shape import Shape
from tests.residency.builders import random_calls, run
from tests.residency.compare import workload_of
from tests.support import refused

T_95 = {1: 6.313752, 2: 2.919986, 3: 2.353363, 5: 2.015048}  # Student's t by degrees of freedom, from a printed table


def uneven(seed: int = 1) -> Workload:
    """Five layers of 9 to 16 experts, of which the last has fewest."""
    rng = np.random.default_rng(seed)
    calls = random_calls(rng, n_experts=9, layers=5, steps=60, most_tokens=2, width=2)
    return workload_of(calls, dict(zip(range(5), (16, 12, 12, 10, 9), strict=True)))


@pytest.fixture(scope="module")
def stationary() -> Workload:
    """24 layers whose experts are equally popular from beginning to end."""
    shape = Shape("made", dict.fromkeys(range(24), 32), 4, None, True)
    made, _ = synthesize(curve={8: 0.5, 16: 0.75}, shape=shape, tokens=400)
    return Workload(made, None)


@pytest.mark.parametrize(
    ("policy", "contract"),
    [
        *(("fifo", contract) for contract in ("runtime", "protected", "atomic", "sequential")),
        *(("arc", "atomic"), ("min", "atomic"), ("min:forced", "sequential"), ("lru", "runtime"), ("random", "atomic")),
    ],
)
def test_all_layers_are_an_exact_curve(policy: str, contract: str) -> None:
    workload = uneven()
    found = sampled_curve(workload, parse_policy(policy), contract=contract, share=1)
    assert found.layers == workload.trace.layers
    assert [row["bank_slots"] for row in found.rows] == list(range(4, 17))
    for row in found.rows:
        counts = run(workload, row["bank_slots"], policy, contract).counts.total()
        assert row["hit_rate"] == pytest.approx(counts["hit_rate"], abs=1e-12)
        assert row["misses_per_token"] == pytest.approx(counts["misses_per_token"])
        assert row["hit_rate_lo"] == row["hit_rate"] == row["hit_rate_hi"]
        lru = run(workload, row["bank_slots"], "lru", "atomic").counts.total()
        assert row["lru_hit_rate"] == pytest.approx(lru["hit_rate"])


def test_layers_that_ask_for_nothing_are_not_drawn() -> None:
    calls = [(layer, [] if layer < 6 else [layer % 3, 3], int(layer > 5)) for layer in range(8)] * 3
    workload = workload_of(calls, dict.fromkeys(range(8), 4))
    found = sampled_curve(workload, parse_policy("fifo"), share=0.1)
    assert found.layers == (6, 7)
    assert found.rows[-1]["hit_rate"] == pytest.approx(8 / 12)


def test_without_tokens_there_are_no_misses_per_token() -> None:
    trace = uneven().trace
    workload = Workload(trace.with_(n_tokens=np.zeros_like(trace.n_tokens)), None)
    assert {row["misses_per_token"] for row in sampled_curve(workload, parse_policy("fifo"), share=0.5).rows} == {None}


def test_a_row_has_the_columns_and_says_what_was_sampled() -> None:
    workload = uneven()
    found = sampled_curve(workload, parse_policy("fifo"), contract="protected", share=0.5, seed=3)
    assert len(found.layers) == 2
    for row in found.rows:
        assert list(row) == [column.name for column in SAMPLED]
        assert (row["policy"], row["contract"], row["seed"]) == ("fifo", "protected", 3)
        assert (row["sampled_layers"], row["layers"]) == (2, 5)
        lru = run(workload, row["bank_slots"], "lru", "protected").counts.total()
        assert row["lru_hit_rate"] == pytest.approx(lru["hit_rate"])
        assert row["hit_rate_lo"] <= row["hit_rate"] <= row["hit_rate_hi"]


def test_what_a_sample_of_two_says_by_hand() -> None:
    """Two of four layers of 10 requests have 2 and 4 hits more than LRU: 3 a layer, so 0.3 of each request.

    The residuals are -1 and 1, their variance 2, and of the mean (1 - 2/4) * 2 / 2 = 0.5; over 10 requests 0.0707.
    """
    more, half = estimate(np.array([[2, 4]]), np.array([10, 10]), np.array([2.0, 2.0]))
    assert more.tolist() == [0.3]
    assert half[0] == pytest.approx(T_95[1] * 0.5**0.5 / 10)


@pytest.mark.parametrize("layers", [2, 3, 4, 6])
def test_the_twin(layers: int) -> None:
    """From the definition, layer by layer, with weights and requests that differ."""
    rng = np.random.default_rng(layers)
    more, requests = rng.integers(-20, 60, (5, layers)), rng.integers(80, 120, layers)
    weight = rng.integers(2, 5, layers).astype(float)
    ratios, halves = estimate(more, requests, weight)
    for hits, ratio, half in zip(more.tolist(), ratios, halves, strict=True):
        asked = sum(w * q for w, q in zip(weight, requests, strict=True))
        expected = sum(w * h for w, h in zip(weight, hits, strict=True)) / asked
        residuals = [h - expected * q for h, q in zip(hits, requests, strict=True)]
        squares = sum(one**2 for one in residuals) / (layers - 1)
        error = sum(weight) * ((1 - layers / sum(weight)) * squares / layers) ** 0.5 / asked
        assert ratio == pytest.approx(expected)
        assert half == pytest.approx(T_95[layers - 1] * error, rel=1e-6)


def test_layers_that_are_alike_leave_the_least_interval() -> None:
    _, half = estimate(np.array([[3, 3]]), np.array([10, 10]), np.array([2.0, 2.0]))
    assert half.tolist() == [LEAST_HALF]


def test_the_mean_over_all_samples_is_exact() -> None:
    """Each pair of six layers with as many requests is as likely as any other."""
    more, requests = np.array([5, -2, 9, 0, 4, 1]), np.full(6, 40)
    found = [
        estimate(more[None, list(pair)], requests[list(pair)], np.array([3.0, 3.0]))[0][0]
        for pair in combinations(range(6), 2)
    ]
    assert mean(found) == pytest.approx(more.sum() / requests.sum())


def test_every_pair_is_drawn_as_often() -> None:
    drawn = Counter(tuple(pick(6, 1 / 3, seed=seed)[0].tolist()) for seed in range(3000))
    assert set(drawn) == set(combinations(range(6), 2))
    assert min(drawn.values()) > 150
    assert max(drawn.values()) < 250


@pytest.mark.parametrize("layers", [1, 2, 3, 5, 6, 7, 26, 48])
@pytest.mark.parametrize("share", [0.001, 0.1, 0.25, 0.4, 0.5, 0.75, 0.9, 1])
def test_layers_are_drawn_over_the_whole_depth(layers: int, share: float) -> None:
    picked, weight = pick(layers, share, seed=5)
    wanted = min(layers, max(2, round(share * layers)))
    assert len(picked) == wanted
    assert picked.tolist() == sorted(set(picked.tolist()))
    assert weight.sum() == pytest.approx(layers)
    strata = np.array_split(np.arange(layers), max(wanted // 2, 1))
    held = [int(np.isin(stratum, picked).sum()) for stratum in strata]
    assert held == [min(len(strata[0]), 2 + wanted % 2), *[2] * (len(strata) - 1)]
    assert np.allclose(weight, np.repeat([len(s) / n for s, n in zip(strata, held, strict=True)], held))


@pytest.mark.parametrize("policy", ["fifo", "lfu", "min"])
def test_on_a_stationary_trace_the_estimate_is_unbiased_and_the_interval_holds(
    stationary: Workload, policy: str
) -> None:
    exact = run(stationary, 8, policy).counts.total()["hit_rate"]
    errors, held = [], 0
    for seed in range(60):
        found = sampled_curve(stationary, parse_policy(policy), share=0.25, seed=seed)
        (row,) = [row for row in found.rows if row["bank_slots"] == 8]
        errors.append(row["hit_rate"] - exact)
        held += row["hit_rate_lo"] <= exact <= row["hit_rate_hi"]
    assert abs(mean(errors)) < 3 * stdev(errors) / len(errors) ** 0.5
    assert stdev(errors) < 0.01
    assert 48 <= held <= 60


def test_round_sizes() -> None:
    assert round_sizes(range(4, 17)) == list(range(4, 17))
    assert round_sizes(range(9, 130)) == [9, *range(16, 129, 8), 129]


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"share": 0.5, "seed": -1}, "seed -1: expected 0 or more"),
        *(({"share": share}, "expected a share of the layers") for share in (0, -0.1, 1.01, float("nan"))),
    ],
)
def test_shares_and_seeds_that_are_none(more: dict[str, Any], reason: str) -> None:
    with refused(OutOfRange, reason):
        sampled_curve(uneven(), parse_policy("fifo"), **more)


@pytest.mark.parametrize(
    ("policy", "contract", "reason"),
    [
        ("lru", "atomic", "leave out --sample"),
        ("lru", "protected", "leave out --sample"),
        ("static", "atomic", "leave out --sample"),
        ("hot-window", "atomic", "shares? memory between layers"),
        ("demand", "atomic", "does not evict"),
        ("arc", "elsewhere", "contract"),
    ],
)
def test_what_cannot_be_sampled_is_refused(policy: str, contract: str, reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        sampled_curve(uneven(), parse_policy(policy), contract=contract, share=0.5)
