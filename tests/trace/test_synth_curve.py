"""Traces drawn to have a hit curve: they have it, as every other part of the program counts it."""

from __future__ import annotations

import numpy as np
import pytest

from flashmoe_sim.io.errors import BadInput, OutOfRange, TooLarge
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.policies.min_ import Min
from flashmoe_sim.residency.curve import hit_curve
from flashmoe_sim.residency.workload import prepare
from flashmoe_sim.trace.cut import cut
from flashmoe_sim.trace.load import load_trace
from flashmoe_sim.trace.routing import PHASE_DECODE, PHASE_PROMPT, RoutingTrace
from flashmoe_sim.trace.synth_curve import TOLERANCE, from_curve
from flashmoe_sim.trace.synth_shape import Shape, plain_shape
from tests.support import refused

# Published for Qwen3.5-35B-A3B cut to top-4 and 120 tokens, and for Kimi-K2.5 cut to top-4 and 100 tokens.
QWEN = {16: 0.588, 32: 0.728, 64: 0.818, 128: 0.845, 256: 0.845}
KIMI = {16: 0.556, 32: 0.641, 64: 0.737, 128: 0.764, 256: 0.764}
QWEN_SHAPE = plain_shape(layers=40, n_experts=256, top_k=4)
# Published for Qwen3-235B.
STEEP = {32: 0.749, 64: 0.946, 96: 0.971}
SMOOTH = {slots: 1 - (1 + slots / 24) ** -1.2 for slots in (8, 12, 16, 24, 32, 48, 64, 96, 128, 192)}


def lru_hit_rates(trace: RoutingTrace) -> dict[int, float]:
    return {slots: counts.total()["hit_rate"] for slots, counts in hit_curve(prepare(trace), Lru()).items()}


@pytest.mark.parametrize(
    ("curve", "shape", "tokens"),
    [
        (QWEN, QWEN_SHAPE, 120),
        (QWEN, QWEN_SHAPE, 125),
        (KIMI, plain_shape(layers=60, n_experts=384, top_k=4), 100),
        (STEEP, plain_shape(layers=94, n_experts=128, top_k=8), 500),
        (SMOOTH, plain_shape(layers=6, n_experts=256, top_k=8), 2000),
        (SMOOTH, plain_shape(layers=1, n_experts=256, top_k=8), 2000),
        ({256: 0.9}, plain_shape(layers=4, n_experts=256, top_k=8), 200),
        ({16: 0.0, 32: 0.9}, plain_shape(layers=4, n_experts=256, top_k=8), 200),
        ({8: 0.97}, plain_shape(layers=4, n_experts=256, top_k=8), 2000),
        ({8: 0.0}, plain_shape(layers=4, n_experts=64, top_k=8), 100),
    ],
)
@pytest.mark.parametrize("seed", [1, 2])
def test_the_curve_is_had(curve: dict[int, float], shape: Shape, tokens: int, seed: int) -> None:
    trace, fit = from_curve(curve, shape, tokens=tokens, seed=seed)
    rates = lru_hit_rates(trace)
    assert fit.banks == tuple(curve)
    assert fit.made == fit.fitted == tuple(rates[slots] for slots in curve)
    assert fit.asked == tuple(curve.values())
    assert max(abs(rates[slots] - rate) for slots, rate in curve.items()) <= TOLERANCE == 0.005


def test_between_the_points_it_is_like_a_recording() -> None:
    """Of the curve of a bundled trace every fourth power of two is given, and the others come within 3 points."""
    recorded = load_trace("gpt-oss-120b")
    rates = lru_hit_rates(recorded)
    shape = plain_shape(layers=len(recorded.layers), n_experts=128, top_k=4)
    made = lru_hit_rates(from_curve({n: rates[n] for n in (16, 64)}, shape, tokens=recorded.tokens)[0])
    assert max(abs(made[slots] - rates[slots]) for slots in range(16, 65)) < 0.03


@pytest.mark.parametrize("name", ["python-256", "gpt-oss-120b", "deepseek-v2-lite"])
def test_the_optimum_is_like_that_of_the_recording(name: str) -> None:
    """The optimum's hit rate is within 1.5 points of the recording's, from one eighth of the experts to a half."""
    recorded = prepare(load_trace(name))
    rates, n_experts = lru_hit_rates(recorded.trace), recorded.n_experts[0]
    curve = {slots: rates[slots] for slots in (8, 16, 32, 64, 128) if slots < n_experts}
    shape = plain_shape(layers=len(recorded.trace.layers), n_experts=n_experts, top_k=recorded.trace.top_k)
    made = prepare(from_curve(curve, shape, tokens=recorded.trace.tokens)[0])
    optimum = [
        {slots: one.total()["hit_rate"] for slots, one in hit_curve(of, Min()).items()} for of in (made, recorded)
    ]
    assert all(abs(optimum[0][n_experts // part] - optimum[1][n_experts // part]) < 0.015 for part in (8, 4, 2))


def test_what_is_made() -> None:
    shape = Shape("m", {3: 64, 5: 32}, 4)
    trace, _ = from_curve({8: 0.5, 16: 0.7}, shape, tokens=90, prompt=10)
    assert trace.layers == (3, 5)
    assert (trace.n_experts, trace.n_experts_known, trace.top_k) == ({3: 64, 5: 32}, True, 4)
    assert (trace.calls, trace.tokens, trace.refs) == (200, 100, 800)
    assert trace.phase.tolist() == [PHASE_PROMPT] * 20 + [PHASE_DECODE] * 180
    assert trace.steps.tolist() == [step for step in range(100) for _ in shape.n_experts]
    for view in trace.by_layer:
        tokens = view.expert.reshape(-1, 4)
        assert all(len(set(token)) == 4 for token in tokens.tolist())
        assert 0 <= tokens.min() <= tokens.max() < shape.n_experts[view.layer]
    assert trace.notes[0].startswith(
        "synthetic, not a recording: drawn by LRU depth to hit in banks as asked (as made)"
    )
    assert trace.notes[0].endswith("seed 1")


def test_a_seed_says_which() -> None:
    shape = plain_shape(layers=3, n_experts=64, top_k=4)
    made = [from_curve({8: 0.5}, shape, tokens=60, seed=seed)[0] for seed in (7, 7, 8)]
    assert made[0].equals(made[1])
    assert not np.array_equal(made[0].expert, made[2].expert)
    first, second, _ = (view.expert for view in made[0].by_layer)
    assert not np.array_equal(first, second)


def test_what_a_seed_means_stays() -> None:
    trace, _ = from_curve({2: 0.4, 4: 0.6}, plain_shape(layers=1, n_experts=6, top_k=2), tokens=15)
    assert trace.expert.reshape(-1, 2).tolist() == [
        [5, 2], [3, 5], [5, 3], [3, 4], [3, 1], [4, 3], [1, 5], [4, 5], [5, 0],
        [4, 2], [5, 4], [3, 5], [5, 1], [2, 1], [0, 4]
    ]  # fmt: skip


def test_a_curve_of_another_length() -> None:
    """The first tokens of a longer trace are those of the run that the curve is of; then fewer are first uses."""
    run, fit = from_curve(QWEN, QWEN_SHAPE, tokens=120)
    longer, of_run = from_curve(QWEN, QWEN_SHAPE, tokens=470, prompt=30, curve_tokens=120)
    assert np.array_equal(cut(longer, steps=(0, 120)).expert, run.expert)
    assert (of_run.fitted, of_run.curve_tokens) == (fit.fitted, 120)
    assert of_run.made[-1] > fit.made[-1] + 0.05
    assert of_run.made == tuple(lru_hit_rates(longer)[slots] for slots in QWEN)
    shorter, _ = from_curve(QWEN, QWEN_SHAPE, tokens=50, curve_tokens=120)
    assert np.array_equal(cut(run, steps=(0, 50)).expert, shorter.expert)


@pytest.mark.parametrize(
    ("curve", "options", "found", "kind"),
    [
        ({2: 0.5, 16: 0.6}, {}, "a bank of 2 slots does not hold a token's 4 experts; leave it out", OutOfRange),
        ({16: 0.5, 300: 0.6}, {}, "a bank of 300 slots; a layer has 256 experts", OutOfRange),
        ({16: 1.0}, {}, "misses 0.0% at bank 16, but the first uses of 4 experts in a layer alone are 1.0", OutOfRange),
        ({16: 0.5, 64: 0.9, 128: 0.95}, {}, "misses 5.0% at bank 128, but the first uses of 65 experts", OutOfRange),
        ({16: 0.5, 256: 0.6}, {"tokens": 500}, "misses 40.0% at bank 256, which holds all: these are firs", OutOfRange),
        (QWEN, {"tokens": 2000}, "at most 256 experts, but in 2,000 tokens they would be 1,240; give the ", OutOfRange),
        (QWEN, {"tokens": 2000}, "(--curve-tokens, at most 426)", OutOfRange),
        ({64: 0.8, 128: 0.8}, {"tokens": 2000}, "bank 128, which hits no more than bank 64: these are fir", OutOfRange),
        ({16: 0.5}, {"tokens": 0}, "0 tokens after a prompt of 0; expected at least 1", OutOfRange),
        ({16: 0.5}, {"prompt": -1}, "a prompt of -1", OutOfRange),
        ({16: 0.5}, {"curve_tokens": 0}, "0 tokens", OutOfRange),
        ({16: 0.5}, {"seed": -1}, "seed -1; expected 0 or a positive number", OutOfRange),
        ({16: 0.5}, {"tokens": 10**9}, "references; expected at most 268,435,456", TooLarge),
    ],
)
def test_refusals(curve: dict[int, float], options: dict[str, int], found: str, kind: type[BadInput]) -> None:
    with refused(kind, found):
        from_curve(curve, plain_shape(layers=2, n_experts=256, top_k=4), **{"tokens": 100, **options})


def test_a_curve_that_cannot_be_had_says_what_it_comes_to() -> None:
    with pytest.raises(OutOfRange, match=r"in 12 tokens bank 17 comes to 17.7%, not to 55.0%"):
        from_curve({16: 0.05, 17: 0.55}, plain_shape(layers=2, n_experts=256, top_k=4), tokens=12)
