"""Null traces: everything that must stay stays, everything else is lost, and a seed says how."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from flashmoe_sim.ceilings.diagnose import diagnose
from flashmoe_sim.io.errors import OutOfRange
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.residency.workload import Setup, prepare
from flashmoe_sim.trace.nulls import shuffled_null, uniform_null
from flashmoe_sim.trace.routing import RoutingTrace
from tests.residency.builders import Call, one_layer, random_calls, trace_of
from tests.residency.compare import calls_of
from tests.residency.test_twins import random_workload

NULLS = (uniform_null, shuffled_null)


def pcg64(seed: int, count: int) -> list[int]:
    """The raw outputs of PCG64, the same in every version of numpy."""
    return [int(draw) for draw in np.random.PCG64(seed).random_raw(count)]


def uniform_twin(trace: RoutingTrace, seed: int) -> list[Call]:
    """In every call each expert that is new in it is dealt from its layer's deck, by one draw a reference."""
    draws = iter(pcg64(seed, trace.refs))
    decks = {layer: list(range(trace.n_experts[layer])) for layer in trace.layers}
    calls: list[Call] = []
    for layer, experts, tokens in calls_of(trace):
        deck, renamed = decks[layer], dict[int, int]()
        for expert, draw in zip(experts, draws, strict=False):
            if expert not in renamed:
                dealt = len(renamed)
                place = dealt + (draw >> 32) * (len(deck) - dealt) // 2**32
                deck[dealt], deck[place] = deck[place], deck[dealt]
                renamed[expert] = deck[dealt]
        calls.append((layer, [renamed[expert] for expert in experts], tokens))
    return calls


def shuffled_twin(trace: RoutingTrace, seed: int) -> list[Call]:
    """Each layer's calls in the order of their draws."""
    draws, calls = pcg64(seed, trace.calls), calls_of(trace)
    order = {
        layer: iter(sorted((n for n, call in enumerate(calls) if call[0] == layer), key=draws.__getitem__))
        for layer in trace.layers
    }
    return [calls[next(order[layer])] for layer, _, _ in calls]


@pytest.mark.parametrize("seed", range(20))
def test_twins(seed: int) -> None:
    trace = random_workload(seed).trace
    assert calls_of(uniform_null(trace, seed=seed)) == uniform_twin(trace, seed)
    assert calls_of(shuffled_null(trace, seed=seed)) == shuffled_twin(trace, seed)
    for made in (null(trace, seed=seed) for null in NULLS):
        assert made.steps.tolist() == trace.steps.tolist()
        assert (made.n_experts, made.n_experts_known, made.top_k) == (trace.n_experts, True, trace.top_k)


def test_many_experts_and_repeats_in_a_call() -> None:
    calls = random_calls(np.random.default_rng(3), n_experts=300, layers=3, steps=40, most_tokens=5, width=9)
    trace = trace_of(calls, 300)
    assert calls_of(uniform_null(trace, seed=7)) == uniform_twin(trace, 7)


def test_a_seed_says_which() -> None:
    trace = trace_of(one_layer([[n % 7, 7 + n % 5] for n in range(40)]), 12)
    for null in NULLS:
        assert calls_of(null(trace)) == calls_of(null(trace, seed=1)) != calls_of(null(trace, seed=2))


def test_uniform_by_hand() -> None:
    # PCG64 from seed 1, as shares of 2^64: .512 .950 | .144 .949 | .312 .423. The deck is 0 1 2 3 4 5 6 7.
    # .512 x 8 = 4: place 4 is dealt, 4.  .950 x 7 = 6: of the places from 1 on the last, 7.  Deck: 4 7 2 3 0 5 6 1.
    # .144 x 8 = 1: place 1, 7.  .949 x 7 = 6: the last, 1.  Deck: 7 1 2 3 0 5 6 4.
    # .312 x 8 = 2: place 2, 2.  .423 x 7 = 2: place 3, 3.
    trace = trace_of(one_layer([[0, 1], [0, 1], [1, 0]]), 8)
    assert calls_of(uniform_null(trace, seed=1)) == one_layer([[4, 7], [7, 1], [2, 3]])


def test_uniform_is_uniform() -> None:
    """2,000 calls of 4 of 16: each expert in 500 ± 5 standard deviations of 19.4, neighbours independent."""
    null = uniform_null(trace_of(one_layer([[0, 1, 2, 3]] * 2000), 16))
    asked = np.bincount(null.expert, minlength=16)
    assert (abs(asked - 500) < 97).all()
    by_call = null.expert.reshape(-1, 4)
    shared = sum(len(np.intersect1d(a, b)) for a, b in itertools.pairwise(by_call))
    assert abs(shared / 1999 - 1) < 5 * 0.78 / 1999**0.5  # hypergeometric: mean 4 x 4/16, variance 0.6


def test_weights_stay_with_their_calls_or_their_places() -> None:
    """So that policies that see them can be diagnosed."""
    trace = trace_of(one_layer([[0, 1], [1, 2], [2, 3], [3, 0]]), 4).with_(weight=np.arange(8, dtype=np.float32) / 8)
    assert uniform_null(trace).weight.tolist() == trace.weight.tolist()
    made = shuffled_null(trace, seed=1)
    assert dict(zip(made.weight.tolist(), made.expert.tolist(), strict=True)) == dict(
        zip(trace.weight.tolist(), trace.expert.tolist(), strict=True)
    )
    assert made.weight.tolist() != trace.weight.tolist()
    assert diagnose(prepare(trace), Setup(Bank(slots=2), Lru(minor="drop@1"), "atomic")).nulls.hit_rate < 1


@pytest.mark.parametrize("null", NULLS)
def test_nothing_of_the_recorded_run_is_kept(null: type) -> None:
    trace = trace_of(one_layer([[0, 1], [1, 2], [2, 3]]), 4)
    references, calls = np.zeros(6), np.zeros(3, np.int32)
    recorded = trace.with_(
        slot=references.astype(np.int16),
        resident=references.astype(np.uint8),
        phase=calls.astype(np.uint8),
        sequence=calls,
    )
    made = null(recorded)
    assert [made.slot, made.resident, made.phase, made.sequence] == [None] * 4
    assert made.name != trace.name
    assert "null trace" in made.notes[-1]


@pytest.mark.parametrize("null", NULLS)
def test_an_empty_trace_and_empty_calls(null: type) -> None:
    assert null(trace_of([], 4)).calls == 0
    trace = trace_of([(0, [], 0), (0, [1], 1), (0, [], 0)], 4)
    assert sorted(len(experts) for _, experts, _ in calls_of(null(trace))) == [0, 0, 1]


@pytest.mark.parametrize("null", NULLS)
def test_a_negative_seed_is_refused(null: type) -> None:
    with pytest.raises(OutOfRange, match="seed -1"):
        null(trace_of(one_layer([[0]]), 1), seed=-1)
