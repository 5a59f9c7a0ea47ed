"""Traces drawn to be like another one: popularity and overlap are the same, at any length."""

from __future__ import annotations

import math

import numpy as np
import pytest

from flashmoe_sim.io.errors import BadInput, Incomplete, OutOfRange
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.workload import prepare
from flashmoe_sim.sweep.plan import plan_setup
from flashmoe_sim.trace.load import load_trace
from flashmoe_sim.trace.routing import PHASE_PROMPT, RoutingTrace
from flashmoe_sim.trace.statistics import inspect
from flashmoe_sim.trace.synth_like import alike
from flashmoe_sim.trace.synth_shape import Shape
from tests.support import refused
from tests.trace.strategies import trace_of

NAMES = ("python-256", "gpt-oss-120b", "qwen3-30b-mlx")


def popularity(trace: RoutingTrace) -> list[np.ndarray]:
    return [np.bincount(view.expert, minlength=trace.n_experts[view.layer]) for view in trace.by_layer]


@pytest.mark.parametrize("name", NAMES)
def test_it_is_alike(name: str) -> None:
    """4,000 tokens: skew and overlap within 1 point; each layer's popular experts are the same ones."""
    trace = load_trace(name)
    made, fit = alike(trace, tokens=4000)
    found = inspect(made)
    assert made.tokens == 4000
    assert (fit.made.top_decile_share, fit.made.overlap) == pytest.approx((found.top_decile_share, found.overlap))
    assert fit.made.normalised_entropy == pytest.approx(found.normalised_entropy)
    assert fit.made.top_decile_share == pytest.approx(fit.asked.top_decile_share, abs=0.01)
    assert fit.made.normalised_entropy == pytest.approx(fit.asked.normalised_entropy, abs=0.01)
    assert fit.made.overlap == pytest.approx(fit.asked.overlap, abs=0.01)
    more = [(b.overlap or 0) - (a.overlap or 0) for a, b in zip(inspect(trace).layers, found.layers, strict=True)]
    assert min(more) > -0.01
    assert sorted(more)[-2] < 0.01  # the first layer of one trace overlaps less than its popularity gives
    for before, after in zip(popularity(trace), popularity(made), strict=True):
        assert (after[before == 0] == 0).all()
        assert np.corrcoef(before, after)[0, 1] > 0.85


@pytest.mark.parametrize("name", ["cpp-256", "gpt-oss-120b", "deepseek-v2-lite"])
def test_banks_hit_as_in_the_recording(name: str) -> None:
    """LRU, and a profile of the first half on the second, in banks of an eighth, a quarter and half of the experts."""
    trace = load_trace(name)
    asked, made = hits(trace), hits(alike(trace)[0])
    assert made == pytest.approx(asked, abs=0.03)
    if name != "cpp-256":  # whose recording ends in the same words again and again
        assert swapped(alike(trace)[0]) == pytest.approx(swapped(trace), abs=0.025)
    if name == "gpt-oss-120b":  # recency and drift, which popularity alone has not
        assert asked["lru", 4] > 0.87
        assert asked["half", 4] < 0.7


def swapped(trace: RoutingTrace) -> float:
    """Hits of the second half in a sixth of the experts, a profile's at first, exchanged for those used more since.

    Such a cache lives on experts that are used again and again for a while, longer than LRU has to remember.
    """
    workload, steps = (
        prepare(trace.with_(expert_bytes=dict.fromkeys(trace.layers, 1)), None),
        len(np.unique(trace.steps)),
    )
    policy = f"bounded-swaps:profile_steps={steps // 2}"
    setup = plan_setup(f"{sum(trace.n_experts.values()) // 6}B", policy=policy, contract="atomic")
    stream = replay(workload, setup, record=True).stream
    late = stream.step >= np.median(stream.step)
    return float(1 - stream.misses[late].sum() / stream.requests[late].sum())


def hits(trace: RoutingTrace) -> dict[tuple[str, int], float]:
    workload = prepare(trace, None)
    experts, found = next(iter(trace.n_experts.values())), {}
    for share in (8, 4, 2):
        replayed = replay(workload, plan_setup(experts // share, policy="lru", contract="atomic"))
        total = replayed.counts.total()
        found["lru", share] = total["hits"] / total["requests"]
        hit = requests = 0
        for view in trace.by_layer:
            of_call = np.diff(view.offset)
            half = view.offset[int(np.searchsorted(np.cumsum(of_call), of_call.sum() / 2))]
            before, after = (np.bincount(part, minlength=experts) for part in np.split(view.expert, [half]))
            hit += after[np.argsort(-before, kind="stable")[: experts // share]].sum()
            requests += after.sum()
        found["half", share] = float(hit / requests)
    return found


def test_between_two_recordings_it_hits_between_them() -> None:
    """In equal shares, hits of 90% and 50% make 75%: the mean of the logarithms of the odds."""
    one, other = load_trace("gpt-oss-120b"), load_trace("deepseek-v2-lite")
    shape = Shape("of another model", dict.fromkeys(range(4), 96), top_k=6)
    likes = (alike(one, shape=shape)[0], alike(other, shape=shape)[0])
    made, fit = alike(one, shape=shape, other=other, share=0.5)
    both = [hits(each) for each in likes]
    for (policy, share), found in hits(made).items():
        low, high = sorted(each[policy, share] for each in both)
        assert low < found < high
        if policy == "lru":
            odds = [each[policy, share] / (1 - each[policy, share]) for each in both]
            assert found == pytest.approx(1 - 1 / (1 + math.sqrt(odds[0] * odds[1])), abs=0.04)
    assert fit.asked.overlap == pytest.approx(sum((inspect(each).overlap or 0) for each in (one, other)) / 2, abs=0.02)
    whole = alike(one, shape=shape, other=other, share=1.0)[0]
    assert hits(whole) == pytest.approx(both[0], abs=0.02)


def test_few_experts_with_most_of_the_weight() -> None:
    """A token of eight takes the few heavy experts of a layer first; what is left of the weight rounds to nothing."""
    made, _ = alike(load_trace("gpt-oss-120b"), shape=Shape("olmoe", dict.fromkeys(range(16), 64), top_k=8))
    assert made.expert.min() >= 0
    assert (np.diff(np.sort(made.expert.reshape(-1, 8), axis=1), axis=1) > 0).all()


def test_what_was_asked_is_what_was_measured() -> None:
    trace = load_trace("gpt-oss-120b")
    _, fit = alike(trace, tokens=10)
    found = inspect(trace)
    assert (fit.asked.overlap, fit.asked.top_decile_share) == pytest.approx((found.overlap, found.top_decile_share))
    assert fit.asked.normalised_entropy == pytest.approx(found.normalised_entropy)


def test_what_is_made() -> None:
    trace = load_trace("python-256")
    made, _ = alike(trace, prompt=4)
    assert (made.layers, made.n_experts, made.top_k) == (trace.layers, trace.n_experts, trace.top_k)
    assert (made.tokens, made.name) == (trace.tokens + 4, "like python-256")
    assert made.phase is not None
    assert np.flatnonzero(made.phase == PHASE_PROMPT).tolist() == list(range(4 * 6))
    assert (np.diff(made.offset) == 8).all()
    tokens = np.sort(made.expert.reshape(-1, 8), axis=1)
    assert (np.diff(tokens, axis=1) > 0).all()
    assert made.notes[0].startswith("synthetic, not a recording: popularity and overlap like python-256, as asked (as")


def test_a_seed_says_which() -> None:
    trace = trace_of(*((0, [n % 5, 5 + n % 3]) for n in range(60)), top_k=2)
    assert alike(trace, seed=3)[0].equals(alike(trace, seed=3)[0])
    assert not np.array_equal(alike(trace, seed=3)[0].expert, alike(trace, seed=4)[0].expert)


@pytest.mark.parametrize(
    ("tokens", "overlap"),
    [([[0, 1]] * 30, 1.0), ([[0, 1], [2, 3]] * 15, 0.0), ([[0, 1], [0, 2], [0, 3], [0, 1]] * 10, None)],
)
def test_extremes(tokens: list[list[int]], overlap: float | None) -> None:
    """All the same, never the same (as near as drawing by weight gets), and an expert in every token."""
    trace = trace_of(*((0, token) for token in tokens), top_k=2)
    made, fit = alike(trace, tokens=500)
    if overlap is None:
        assert np.count_nonzero(made.expert == 0) > 480
    elif overlap:
        assert fit.made.overlap == fit.asked.overlap == 1.0
    else:
        assert (fit.asked.overlap, popularity(made)[0].tolist()) == (0, pytest.approx([250] * 4, abs=25))
        assert fit.made.overlap < 0.1


@pytest.mark.parametrize(
    ("trace", "options", "found", "kind"),
    [
        (trace_of(), {}, "trace: has no top-k that all tokens share; cut it with --topk first", Incomplete),
        (trace_of((0, [1, 2]), (0, [1]), name="t"), {}, "t: has no top-k", Incomplete),
        (trace_of((0, [1, 2]), (0, [1, 2]), (1, [1, 2]), top_k=2), {}, "layer 1 has no two tokens in a ro", Incomplete),
        (trace_of((0, [1]), (0, [2]), top_k=1), {"tokens": 0}, "0 tokens after a prompt of 0", OutOfRange),
        (trace_of((0, [1]), (0, [2]), top_k=1), {"seed": -2}, "seed -2", OutOfRange),
    ],
)
def test_refusals(trace: RoutingTrace, options: dict[str, int], found: str, kind: type[BadInput]) -> None:
    with refused(kind, found):
        alike(trace, **options)
