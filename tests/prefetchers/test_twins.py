"""Every predictor predicts exactly what its plain twin does."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashmoe_sim.prefetchers.table import WITHOUT_FILE, parse_prefetcher
from flashmoe_sim.trace.routing import RoutingTrace
from tests.prefetchers import naive
from tests.residency.builders import random_calls, trace_of
from tests.residency.compare import predictions_of

VARIANTS = [
    *("hot:width=1", "hot:width=3", "hot:width=99"),
    *("markov:width=1", "markov:width=3", "markov:width=99"),
    *("next-layer:width=1", "next-layer:width=3", "next-layer:width=99"),
    *("eam:stored=1", "eam:stored=3", "eam:reach=1", "eam:reach=99", "eam:width=1", "eam:width=5:stored=2"),
    *("eam:width=99:reach=2", "eam:stored=99"),
    *("oracle-w:steps=2", "oracle-w:steps=5", "oracle-w:steps=99"),
    *("synthetic:recall=0.0", "synthetic:recall=1.0", "synthetic:seed=7", "synthetic:recall=0.3:extra=2"),
    *("synthetic:extra=99", "synthetic:recall=0.8:extra=1:steps=2:seed=3"),
    *("synthetic:recall=0.8:extra=1:layers=2", "synthetic:layers=99", "synthetic:drafted=True"),
]
SPECS = [*WITHOUT_FILE, *VARIANTS]


@cache
def random_trace(seed: int) -> RoutingTrace:
    """Layers with gaps between their numbers, some with fewer experts or calls; several tokens a call, with repeats.

    Every third trace records its steps: numbers are left out, and a layer may have two calls in a step.
    Every fourth has calls without tokens.
    """
    rng = np.random.default_rng(seed)
    n_experts = int(rng.integers(2, 13))
    calls = random_calls(
        rng,
        n_experts=n_experts,
        layers=int(rng.integers(1, 6)),
        steps=int(rng.integers(1, 20)),
        most_tokens=int(rng.integers(1, 4)),
        missing=float(rng.choice([0.0, 0.3])),
        idle=0.3 if seed % 4 == 0 else 0.0,
    )
    most = {
        layer: max((expert for other, experts, _ in calls if other == layer for expert in experts), default=0)
        for layer, _, _ in calls
    }
    trace = trace_of(
        [(3 + 2 * layer, experts, tokens) for layer, experts, tokens in calls],
        {3 + 2 * layer: int(rng.integers(most[layer] + 1, n_experts + 1)) for layer in most},
    )
    if seed % 3 == 0:
        changes = rng.random(trace.calls) < 0.4
        trace = trace.with_(step=np.cumsum(changes * rng.integers(1, 5, trace.calls)).astype(np.int32))
    if seed % 2:
        trace = trace.with_(top_k=len(calls[0][1]) // max(calls[0][2], 1))
    return trace


def assert_twins(spec: str, trace: RoutingTrace) -> None:
    predictor = parse_prefetcher(spec)
    made = predictor.predict(trace)
    assert (made.after.dtype, made.row.dtype, made.offset.dtype, made.expert.dtype) == (
        np.int64,
        np.int32,
        np.int64,
        np.int16,
    )
    assert len(made.offset) == len(made.after) + 1 == len(made.row) + 1
    assert (np.diff(made.after) >= 0).all()
    assert made.offset[-1] == len(made.expert)
    assert predictions_of(predictor, trace) == naive.predictions(predictor, trace)


@pytest.mark.parametrize("spec", SPECS)
def test_random_traces(spec: str) -> None:
    for seed in range(24):
        assert_twins(spec, random_trace(seed))


@pytest.mark.parametrize("spec", SPECS)
@settings(max_examples=40)
@given(data=st.data())
def test_any_trace(spec: str, data: st.DataObject) -> None:
    """Traces of any shape: any order of layers, empty calls, layers of one expert, layers that never recur."""
    n_experts = {layer: data.draw(st.integers(1, 5), label=f"experts of {layer}") for layer in range(4)}
    layer = st.integers(0, 3)
    call = layer.flatmap(
        lambda layer: st.tuples(
            st.just(layer), st.lists(st.integers(0, n_experts[layer] - 1), max_size=6), st.integers(0, 3)
        )
    )
    calls = data.draw(st.lists(call, min_size=1, max_size=20))
    trace = trace_of(calls, n_experts)
    if data.draw(st.booleans(), label="steps recorded"):
        steps = data.draw(st.lists(st.integers(0, 3), min_size=len(calls), max_size=len(calls)))
        trace = trace.with_(step=np.array(steps, np.int32))
    assert_twins(spec, trace)


@pytest.mark.parametrize("spec", [*WITHOUT_FILE, "oracle-w:steps=9", "eam:stored=1:reach=1"])
@pytest.mark.parametrize(
    "calls",
    [
        [(0, [0], 1)],
        [(0, [], 0), (0, [0], 1), (0, [], 0)],
        [(0, [0, 0, 0], 3), (0, [0, 0], 2)],
        [(2, [1], 1), (1, [0, 2], 1), (0, [2, 1], 1)],
        [(0, [0], 1), (1, [0], 1), (2, [0], 1), (2, [0], 1), (2, [0], 1)],
    ],
    ids=["one call", "empty calls", "one expert", "no layer recurs", "layers of one expert, one of which recurs"],
)
def test_small_cases(spec: str, calls: list[tuple[int, list[int], int]]) -> None:
    most = 1 + max(expert for _, experts, _ in calls for expert in experts)
    assert_twins(spec, trace_of(calls, most))


@pytest.mark.parametrize("spec", [*WITHOUT_FILE, "eam:width=3:reach=7", "synthetic:recall=0.6:extra=4"])
def test_many_experts(spec: str) -> None:
    rng = np.random.default_rng(5)
    calls = random_calls(rng, n_experts=300, layers=3, steps=25, most_tokens=3, width=8)
    assert_twins(spec, trace_of(calls, 300).with_(top_k=8))


@pytest.mark.parametrize(
    "spec",
    [
        *("hot:width=2147483647", "markov:width=2147483647", "next-layer:width=2147483647"),
        "eam:stored=2147483647:reach=2147483647:width=2147483647",
        "synthetic:extra=2147483647",
        "oracle-w:steps=2147483647",
    ],
)
def test_the_largest_numbers(spec: str) -> None:
    assert_twins(spec, random_trace(4))
