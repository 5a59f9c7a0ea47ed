"""Which way a trace is made, and those made by chance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flashmoe_sim.io.errors import BadInput, Conflict, Incomplete, OutOfRange, TooLarge, UnknownName
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.residency.curve import hit_curve
from flashmoe_sim.residency.workload import prepare
from flashmoe_sim.trace.load import load_trace
from flashmoe_sim.trace.nulls import shuffled_null, uniform_null
from flashmoe_sim.trace.routing import PHASE_PROMPT
from flashmoe_sim.trace.synth import synthesize
from flashmoe_sim.trace.synth_curve import from_curve
from flashmoe_sim.trace.synth_like import alike
from flashmoe_sim.trace.synth_shape import Shape, plain_shape
from tests.support import refused
from tests.trace.strategies import trace_of

SHAPE = plain_shape(layers=4, n_experts=64, top_k=4)
TRACE = trace_of(*((0, [n % 5, 5 + n % 3]) for n in range(60)), top_k=2, name="t")


def test_uniform_hits_slots_over_experts() -> None:
    """2,000 tokens, 4 layers, 4 of 64: 32,000 requests, of which 256 are first uses; five standard deviations."""
    made, fit = synthesize(null="uniform", shape=SHAPE, tokens=2000)
    assert fit is None
    for slots, counts in hit_curve(prepare(made), Lru()).items():
        share, total = slots / 64, counts.total()
        requests = total["requests"]
        assert requests == 32_000
        slack = 5 * (share * (1 - share) / requests) ** 0.5
        assert share - slack - 256 / requests <= total["hit_rate"] <= share + slack


def test_uniform_of_a_shape() -> None:
    made, _ = synthesize(null="uniform", shape=SHAPE, tokens=50, prompt=5, seed=2)
    assert (made.tokens, made.layers, made.top_k, made.n_experts_known) == (55, (0, 1, 2, 3), 4, True)
    assert made.phase is not None
    assert (made.phase == PHASE_PROMPT).tolist() == [True] * 20 + [False] * 200
    assert made.notes == ("uniform null trace: not a recording",)
    assert made.name == "4 x 64 experts, top-4 (uniform)"
    assert (np.diff(np.sort(made.expert.reshape(-1, 4)), axis=1) > 0).all()
    again = [synthesize(null="uniform", shape=SHAPE, tokens=50, prompt=5, seed=seed)[0] for seed in (2, 3)]
    assert made.equals(again[0])
    assert not np.array_equal(made.expert, again[1].expert)


def test_nulls_of_a_trace_are_those_of_diagnose() -> None:
    trace = load_trace("python-256")
    uniform, _ = synthesize(null="uniform", like=trace, seed=5)
    shuffled, _ = synthesize(null="shuffled", like=trace, seed=5)
    assert uniform.equals(uniform_null(trace, seed=5))
    assert shuffled.equals(shuffled_null(trace, seed=5))
    for before, after in zip(trace.by_layer, shuffled.by_layer, strict=True):
        assert np.array_equal(np.bincount(before.expert), np.bincount(after.expert))


def test_the_others_are_passed_on() -> None:
    made, fit = synthesize(curve=({8: 0.4}, 70), shape=SHAPE, tokens=60, prompt=3, seed=4)
    same, fitted = from_curve({8: 0.4}, SHAPE, tokens=60, prompt=3, curve_tokens=70, seed=4)
    assert made.equals(same)
    assert fit == fitted
    made, fit = synthesize(like=TRACE, tokens=9, prompt=2, seed=4)
    same, likeness = alike(TRACE, tokens=9, prompt=2, seed=4)
    assert made.equals(same)
    assert fit == likeness
    made, _ = synthesize(like=TRACE, shape=SHAPE, tokens=9, seed=4)
    assert made.n_experts == SHAPE.n_experts


@pytest.mark.parametrize(
    ("options", "found", "kind"),
    [
        ({}, "give one of a hit curve, a trace to imitate and a null model", Conflict),
        ({"curve": {8: 0.4}, "like": TRACE}, "give one of", Conflict),
        ({"curve": {8: 0.4}, "null": "uniform"}, "give one of", Conflict),
        ({"like": TRACE, "curve": (None, 9)}, "tokens of the curve without a curve", Incomplete),
        ({"like": TRACE, "null": "uniform", "shape": SHAPE}, "a null model of a trace has the trace's exper", Conflict),
        ({"like": TRACE, "null": "uniform", "tokens": 9}, "a null model of a trace has that trace's tokens", Conflict),
        ({"like": TRACE, "null": "shuffled", "prompt": 9}, "a null model of a trace has that trace's tokens", Conflict),
        ({"like": TRACE, "null": "odd"}, "unknown null model 'odd'; known: shuffled, uniform", UnknownName),
        ({"null": "odd", "shape": SHAPE, "tokens": 9}, "unknown null model 'odd'", UnknownName),
        ({"null": "shuffled", "shape": SHAPE, "tokens": 9}, "give the trace to imitate", Incomplete),
        ({"null": "uniform", "tokens": 9}, "layers, experts and top-k are unknown; give them, or a model", Incomplete),
        ({"null": "uniform", "shape": SHAPE}, "the number of tokens is unknown", Incomplete),
        ({"null": "uniform", "shape": SHAPE, "tokens": 0}, "0 tokens after a prompt of 0", OutOfRange),
        ({"null": "uniform", "shape": SHAPE, "tokens": 9, "seed": -1}, "seed -1", OutOfRange),
        ({"null": "uniform", "like": TRACE, "seed": -1}, "seed -1", OutOfRange),
    ],
)
def test_refusals(options: dict[str, Any], found: str, kind: type[BadInput]) -> None:
    with refused(kind, found):
        synthesize(**options)


@pytest.mark.parametrize(
    ("n_experts", "top_k", "found", "kind"),
    [
        ({}, 1, "0 layers; expected 1 to 32768", OutOfRange),
        ({40_000: 4}, 1, "1 layers", OutOfRange),
        ({0: 4, 1: 0}, 1, "0 experts; expected 1 to 32768", OutOfRange),
        (dict.fromkeys(range(129), 32768), 1, "129 layers of 4,227,072 experts together; expected at most 4", TooLarge),
        ({0: 40_000}, 1, "40000 experts", OutOfRange),
        ({0: 8, 1: 4}, 5, "top-k 5 of 4 experts; expected 1 to 4", OutOfRange),
        ({0: 8}, 0, "top-k 0 of 8 experts", OutOfRange),
    ],
)
def test_shapes_that_cannot_be(n_experts: dict[int, int], top_k: int, found: str, kind: type[BadInput]) -> None:
    with refused(kind, found):
        Shape("m", n_experts, top_k)
